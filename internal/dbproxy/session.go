package dbproxy

// Session follows the conversation of one connection: where messages end, whose turn it
// is, and which of them commit. A message is what has a length of its own on the wire.
//
// RequestLength and Request are called by one goroutine, ReplyLength and Reply by another.
// Request, Inject and Reply are never called at the same time.
type Session interface {
	// HeaderBytes is the number of bytes at the beginning of every message that tell
	// its length. No message is shorter.
	HeaderBytes() int

	// RequestLength returns the length of a message of the client, header included.
	RequestLength(header []byte) (int, error)

	// ReplyLength returns the length of a message of the server.
	ReplyLength(header []byte) (int, error)

	// Request takes a message of the client. It must not keep it.
	Request(message []byte) (Request, error)

	// Inject gives a fault to the commit that Request has just returned.
	Inject(fault Fault)

	// Reply takes a message of the server. It must not keep it, and may change it.
	Reply(message []byte) (Reply, error)
}

// Request is what a message of the client means.
type Request struct {
	Turn    bool   // it begins a round trip
	Setup   bool   // it belongs to the making of the connection, which is not counted
	Execute bool   // it executes SQL
	SQL     string // all statements of the message
	Commit  bool   // it commits

	Answer []byte // not empty: the proxy answers so itself, and does not forward the message
	Last   bool   // nothing follows: what is left to do is to wait for the server's end
}

// Reply is what a message of the server means.
type Reply struct {
	Commit     bool  // it answers a commit, whatever it says
	Fault      Fault // of that commit
	Committed  bool
	RolledBack bool
	ID         uint32 // of the server's process or thread, if it tells one
}
