package pgtest

// SessionMark is a statement of a handler that leaves something behind in its session.
type SessionMark struct {
	Text  string
	Found string // whether another handler meets it: a query with one boolean
}

// SessionMarks returns what no other message may meet, by SQL alone. The role reader must be
// there.
func SessionMarks() []SessionMark {
	return []SessionMark{
		{"SET synchronous_commit = off", "SELECT current_setting('synchronous_commit') = 'off'"},
		{"SELECT set_config('synchronous_commit', 'off', false)", "SELECT current_setting('synchronous_commit') = 'off'"},
		{"SET ROLE reader", "SELECT current_user = 'reader'"},
		{"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SELECT current_setting('transaction_read_only')::boolean"},
		{"SET search_path = pg_catalog", "SELECT current_setting('search_path') = 'pg_catalog'"},
		{"SELECT pg_advisory_lock(4711)", "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND objid = 4711)"},
		{"CREATE TEMP TABLE leftover (a text)", "SELECT to_regclass('pg_temp.leftover') IS NOT NULL"},
		{"DECLARE leftover CURSOR WITH HOLD FOR SELECT 1", "SELECT EXISTS (SELECT FROM pg_cursors WHERE name = 'leftover')"},
		{"PREPARE leftover AS SELECT 1", "SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'leftover')"},
		{"LISTEN leftover", "SELECT EXISTS (SELECT FROM pg_listening_channels() AS channel WHERE channel = 'leftover')"},
		{"DO $$ BEGIN PERFORM set_config('synchronous_commit', 'off', false); END $$", "SELECT current_setting('synchronous_commit') = 'off'"},
		{"SELECT 1 AS a INTO pg_temp.leftover", "SELECT to_regclass('pg_temp.leftover') IS NOT NULL"},
		{`CREATE TABLE "pg_temp"."leftover" (a text)`, "SELECT to_regclass('pg_temp.leftover') IS NOT NULL"},
		{"UPDATE pg_settings SET setting = 'off' WHERE name = 'synchronous_commit'", "SELECT current_setting('synchronous_commit') = 'off'"},
		{`SELECT "set_config"('synchronous_commit', 'off', false)`, "SELECT current_setting('synchronous_commit') = 'off'"},
		{`SELECT U&"set_\0063onfig"('synchronous_commit', 'off', false)`, "SELECT current_setting('synchronous_commit') = 'off'"},
		{`SELECT "pg_advisory_lock"(4713)`, "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND objid = 4713)"},
		// What no text shows, but the server tells.
		{"SELECT makes_read_only()", "SELECT current_setting('transaction_read_only')::boolean"},
	}
}

// SessionSetUp is what SessionMarks and SessionHabits need, once in a database. The role
// belongs to the whole server.
const SessionSetUp = `DO $$ BEGIN CREATE ROLE reader; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
CREATE FUNCTION makes_read_only() RETURNS text LANGUAGE sql AS 'SELECT set_config(''default_transaction_read_only'', ''on'', false)'`

// SessionHabits are what handlers do that leaves nothing behind, so that their connection
// stays.
func SessionHabits() []string {
	return []string{
		"SELECT 1",
		"SET LOCAL synchronous_commit = off",
		"SET LOCAL search_path = pg_catalog",
		"SELECT set_config('app.tenant', 'a', true)",
		"SELECT pg_advisory_xact_lock(4712)",
		"CREATE TEMP TABLE scratch (a text) ON COMMIT DROP",
		"INSERT INTO effect VALUES ('SET ROLE reader', '\\d')",
		`SELECT "label" AS "temp", U&'\0063' FROM "effect"`,
	}
}
