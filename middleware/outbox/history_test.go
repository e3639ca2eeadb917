package outbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/postgres"
)

// What was published is moved to the history and never looked at there, however much there is.
func TestRelayDoesNotReadItsHistory(t *testing.T) {
	t.Parallel()
	r := onPostgres(t)
	const messages = 1_200
	r.say("", "k", numbered("k", messages/2)...)
	r.say("", "", numbered("m", messages/2)...)
	conn, err := pgx.Connect(t.Context(), r.address)
	check(t, err)
	defer func() { check(t, conn.Close(t.Context())) }()
	number := func(query string) (n int) {
		check(t, conn.QueryRow(t.Context(), query).Scan(&n))
		return n
	}
	const history = " FROM pg_stat_user_tables WHERE relname = 'millpond_outbox_history'"
	end := func(s *postgres.Store) (read int) { // sessions count what they did when they end
		check(t, s.Close())
		testenv.Eventually(t, "the sessions have ended", func() bool {
			return number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()") == 0
		})
		return number("SELECT seq_scan + coalesce(idx_scan, 0)" + history)
	}
	before := end(r.outbox.(*postgres.Store))
	store, err := postgres.Open(t.Context(), r.address)
	check(t, err)
	c := quick(one(each{&broker{}}))
	c.Keep = true
	_, stop := start(t, store, c)
	testenv.Eventually(t, "all settled", func() bool { return number("SELECT count(*) FROM millpond_outbox") == 0 })
	stop()
	if read := end(store) - before; read > 0 {
		t.Errorf("the history was read %d times", read)
	}
	if n := number("SELECT n_tup_ins" + history); n != messages {
		t.Errorf("%d are in the history, want %d", n, messages)
	}
}
