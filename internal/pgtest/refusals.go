package pgtest

// RefusalSetUp makes the tables that Refusals write to.
const RefusalSetUp = `CREATE TABLE priced (id integer PRIMARY KEY, name varchar(3) NOT NULL, price integer CHECK (price > 0), parent integer REFERENCES priced);
INSERT INTO priced VALUES (1, 'a', 1);
CREATE TABLE monthly (month date) PARTITION BY RANGE (month);`

// Refusals returns statements that fail, and whether it is for a value that would be refused
// each time.
func Refusals() map[string]bool {
	return map[string]bool{
		"INSERT INTO priced VALUES (2, 'long', 1)":        true,  // 22001
		"INSERT INTO priced VALUES (2, 'b', 3000000000)":  false, // 22003
		"SELECT 'b'::integer":                             true,  // 22P02
		"SELECT '2026-02-30'::date":                       true,  // 22008
		"SELECT 1/0":                                      false, // 22012
		"INSERT INTO priced VALUES (2, NULL, 1)":          true,  // 23502
		"INSERT INTO priced VALUES (2, 'b', -1)":          false, // 23514
		"INSERT INTO monthly VALUES ('2026-11-22')":       false,
		"INSERT INTO priced VALUES (2, 'b', 1, 3)":        false, // 23503
		"INSERT INTO priced VALUES (1, 'b', 1)":           false, // 23505
		"SELECT * FROM nowhere":                           false,
		"DO $$ BEGIN RAISE EXCEPTION 'not today'; END $$": false,
		"DO $$ BEGIN RAISE SQLSTATE '40001'; END $$":      false,
		"DO $$ BEGIN RAISE SQLSTATE '23514'; END $$":      false,
	}
}
