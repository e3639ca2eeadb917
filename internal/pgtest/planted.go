package pgtest

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// Planted is the test that a store runs nothing of what somebody else has put into public
// under the names of its tables, and uses those of its schema's owner. Open opens a store as
// a role.
func Planted(t *testing.T, open func(t *testing.T, address string) stores.Store) {
	t.Helper()
	p := planting{t, open}
	server := testenv.PrivatePostgres(t)
	first := server.NewDatabase(t)
	p.admin(first, "CREATE ROLE attacker LOGIN", "CREATE ROLE runtime LOGIN", "CREATE ROLE owner LOGIN")
	for name, plant := range p.plants() {
		address := server.NewDatabase(t)
		p.admin(address, "GRANT CREATE ON SCHEMA public TO PUBLIC")
		p.admin(p.as(address, "attacker"), Hijacks)
		plant(address)
		p.admin(address, "DELETE FROM public.hijacked")
		for _, role := range []string{"runtime", superuser} {
			s := open(t, p.as(address, role))
			_, migrateErr := s.Migrate(t.Context())
			_, appliedErr := s.Applied(t.Context())
			for _, err := range []error{migrateErr, appliedErr, s.Validate(t.Context()), s.Register(t.Context(), stores.Registration{Consumer: Stock, Topic: "orders"})} {
				if err == nil || !strings.Contains(err.Error(), `"."millpond_`) || !strings.Contains(err.Error(), " is not used: ") {
					t.Errorf("%s, as %s: %v", name, role, err)
				}
			}
		}
		if ran := hijacked(t, address); len(ran) > 0 {
			t.Errorf("%s: the store has run it: %q", name, ran)
		}
	}

	// What is right: tables of the schema's owner, in a schema that is looked for.
	p.admin(first, "CREATE SCHEMA inboxes AUTHORIZATION owner", "GRANT USAGE ON SCHEMA inboxes TO runtime")
	of := func(role string) string {
		return WithParameters(t, p.as(first, role), "search_path", "inboxes,public")
	}
	p.migrated(of("owner"))
	p.admin(of("owner"), "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA inboxes TO runtime")
	for _, role := range []string{"runtime", superuser} {
		if err := open(t, of(role)).Register(t.Context(), stores.Registration{Consumer: Stock, Topic: "orders"}); err != nil {
			t.Errorf("as %s: %v", role, err)
		}
	}
}

// superuser is the one of a private server.
const superuser = "millpond"

type planting struct {
	*testing.T

	open func(t *testing.T, address string) stores.Store
}

func (p planting) admin(address string, texts ...string) {
	p.Helper()
	conn, err := pgx.Connect(p.Context(), address)
	if err != nil {
		p.Fatal(err)
	}
	defer conn.Close(p.Context())
	for _, text := range texts {
		if _, err := conn.Exec(p.Context(), text); err != nil {
			p.Fatalf("%s: %v", text, err)
		}
	}
}

func (p planting) as(address, role string) string {
	u, err := url.Parse(address)
	if err != nil {
		p.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

func (p planting) migrated(address string) {
	p.Helper()
	if _, err := p.open(p.T, address).Migrate(p.Context()); err != nil {
		p.Fatal(err)
	}
}

// plants are what an attacker does in a database.
func (p planting) plants() map[string]func(address string) {
	const grants = "GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC"
	const view = `CREATE VIEW public.millpond_schema AS SELECT length(public.note('view')) AS version, 0 AS compatible; ` + grants
	const noting = `CREATE FUNCTION public.noting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.note('trigger'); RETURN NEW; END $$`
	const trigger = "CREATE TRIGGER noting AFTER INSERT ON public.millpond_consumer FOR EACH ROW EXECUTE FUNCTION public.noting()"
	return map[string]func(address string){
		"a view": func(address string) { p.admin(p.as(address, "attacker"), view) },
		"a table with a trigger": func(address string) {
			p.migrated(p.as(address, "attacker"))
			p.admin(p.as(address, "attacker"), grants, noting, trigger)
		},
		"a trigger on a table of the owner's": func(address string) {
			p.admin(address, "GRANT CREATE ON SCHEMA public TO owner", "ALTER SCHEMA public OWNER TO owner")
			p.migrated(p.as(address, "owner"))
			p.admin(p.as(address, "owner"), grants)
			p.admin(p.as(address, "attacker"), noting, trigger)
		},
		"a table with a rule": func(address string) {
			p.admin(p.as(address, "attacker"), "CREATE TABLE public.millpond_schema (version int, compatible int)", grants,
				"CREATE RULE noting AS ON INSERT TO public.millpond_schema DO ALSO SELECT public.note('rule')")
		},
		"a schema by the name of the role": func(address string) {
			for _, role := range []string{"runtime", superuser} {
				p.admin(address, "CREATE SCHEMA "+role+" AUTHORIZATION attacker")
				p.admin(p.as(address, "attacker"), strings.ReplaceAll(view, "VIEW public.", "VIEW "+role+"."), "GRANT USAGE ON SCHEMA "+role+" TO PUBLIC", "GRANT ALL ON ALL TABLES IN SCHEMA "+role+" TO PUBLIC")
			}
		},
	}
}

func hijacked(t *testing.T, address string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, _ := conn.Query(t.Context(), "SELECT who || ': ' || what FROM public.hijacked")
	ran, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return ran
}
