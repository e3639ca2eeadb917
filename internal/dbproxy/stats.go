package dbproxy

import "maps"

// Stats counts what went through the proxy, or through one connection, after the
// connection was set up.
type Stats struct {
	// RoundTrips is how often a client sent something while the server had nothing
	// left to answer, and so had to wait for the network. A pipeline is one, however
	// many statements it has, and so is what the server asks for meanwhile, such as the
	// data of a COPY.
	RoundTrips int

	Commits   int // successful COMMITs; a statement that commits by itself has none
	Rollbacks int // also, on PostgreSQL, a COMMIT of an aborted transaction

	// Statements counts executions by the text of the statement. A simple query is
	// one text, however many statements it has.
	Statements map[string]int

	RepliesLost  int // replies to COMMIT that were swallowed
	RequestsLost int // COMMITs that were not forwarded
}

// Since returns what was counted after an earlier reading.
func (s Stats) Since(earlier Stats) Stats {
	d := Stats{
		RoundTrips:   s.RoundTrips - earlier.RoundTrips,
		Commits:      s.Commits - earlier.Commits,
		Rollbacks:    s.Rollbacks - earlier.Rollbacks,
		Statements:   make(map[string]int),
		RepliesLost:  s.RepliesLost - earlier.RepliesLost,
		RequestsLost: s.RequestsLost - earlier.RequestsLost,
	}
	for sql, n := range s.Statements {
		if n -= earlier.Statements[sql]; n != 0 {
			d.Statements[sql] = n
		}
	}
	return d
}

func (s Stats) plus(other Stats) Stats {
	s.RoundTrips += other.RoundTrips
	s.Commits += other.Commits
	s.Rollbacks += other.Rollbacks
	s.RepliesLost += other.RepliesLost
	s.RequestsLost += other.RequestsLost
	sum := make(map[string]int, len(other.Statements))
	maps.Copy(sum, s.Statements)
	for sql, n := range other.Statements {
		sum[sql] += n
	}
	s.Statements = sum
	return s
}
