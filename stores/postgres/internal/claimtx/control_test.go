package claimtx

import "testing"

func TestTransactionControl(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]struct{ control, several bool }{
		"commit": {control: true},
		"  -- why\n/* not /* nested */ */Commit;": {control: true},
		"END":                         {control: true},
		"abort work":                  {control: true},
		"begin":                       {control: true},
		"start transaction read only": {control: true},
		"insert into t values (1) --\r; commit; begin": {control: true, several: true},
		"commit and chain":        {control: true},
		"prepare transaction 'x'": {control: true},
		"rollback":                {control: true},
		"rollback work":           {control: true},
		"rollback; begin; insert into t values (1)":  {control: true, several: true},
		"insert into t values ('a;'';b'); commit":    {control: true, several: true},
		"select $$;commit$$; commit":                 {control: true, several: true},
		`select E'\';commit'`:                        {},
		"select $tag$ ; commit $$ $tag$":             {},
		`select "commit;" from t -- ; commit`:        {},
		"select 1 /* ; commit */":                    {},
		"rollback to savepoint a":                    {},
		"rollback work to a":                         {},
		"ROLLBACK TRANSACTION TO SAVEPOINT a":        {},
		"savepoint a":                                {},
		"release savepoint a":                        {},
		"prepare p as select 1":                      {},
		"update t set a = $1 where b = $2;":          {},
		"do $$ begin perform 1; end $$":              {},
		"insert into begin values (1)":               {},
		"select 1; select 2":                         {several: true},
		"select 'open":                               {several: true},
		"select $$open":                              {several: true},
		"select 1 /* open":                           {several: true},
		"select E'a'\n'\\'' ; rollback; begin; -- '": {several: true},
		`select '\'' ; rollback; begin; -- '`:        {several: true},
		"select 1$$ $$; commit; select $$a$$":        {control: true, several: true},
		"select a$$ from t":                          {},
		"create function f() returns int begin atomic select 1; select case when true then 2 else 3 end; end": {several: true},
		"CREATE OR REPLACE PROCEDURE p(a int) LANGUAGE sql BEGIN ATOMIC INSERT INTO t VALUES (a); END;":       {several: true},
		"create procedure p() begin atomic select 1 as end; end":                                              {several: true},
		"create procedure p() begin atomic end; commit":                                                       {control: true, several: true},
		"create procedure p() begin atomic select 1; end; end":                                                {control: true, several: true},
		"create table function (a int); begin":                                                                {control: true, several: true},
		"select 1; begin atomic":                                                                              {control: true, several: true},
		"":                                                                                                    {},
		";;":                                                                                                  {},
	} {
		if r := Read(sql); r.Control != want.control || r.Several != want.several {
			t.Errorf("%q: %+v", sql, r)
		}
	}
}

func FuzzTransactionControl(f *testing.F) {
	for _, sql := range []string{"commit", "create function f() begin atomic select case when 1 then 2 end; end", "select $a$;$a$", "E'\\'", "/*/**/", "rollback to x"} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		Read(sql) // must end and not panic
		if r := Read("\n" + sql + "\n;commit"); !r.Control && !r.Several {
			t.Errorf("a commit behind %q is neither seen nor suspected", sql)
		}
	})
}
