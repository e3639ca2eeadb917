package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/stores"
)

// roleRecord is a role of roles.
type roleRecord struct {
	Role stores.Role `json:"role"`
	SQL  []string    `json:"sql"`
}

func (p *program) rolesCommand() *cobra.Command {
	var only []string
	cmd := explained(&cobra.Command{
		Use:   "roles",
		Short: "Print the SQL of the database roles: migrator, runtime, operator and readonly",
		Long: `Print the SQL that creates the database roles and grants their rights:

  migrator  runs millpond migrate up, and owns the tables
  runtime   runs services: reads and writes rows, and can neither change nor drop tables
  operator  shows and repairs messages, payloads included
  readonly  counts, lists causes and reads the audit; reads no payload, metadata or facts

An administrator runs it after each millpond migrate up, and grants the roles to accounts:
GRANT millpond_runtime TO app. On MySQL and MariaDB the role must also be the account's default
(SET DEFAULT ROLE), and the statements are run in the database of the tables.

For DynamoDB it prints the IAM policy of each role, for the tables in any region and account.
A service also needs rights to its handlers' own tables.

The command does not connect to a database. It uses the scheme of the store's URL, and the names
of tables and schema in the URL's parameters.`,
		Example: `  millpond roles --store 'postgres://?millpond_schema=millpond' | psql
  millpond roles --store mysql:// --role runtime --role operator
  millpond roles --store 'dynamodb://?region=eu-central-1' --role runtime`,
		Args: noArguments,
	}, nil, nil)
	cmd.Flags().StringSliceVar(&only, "role", roleNames(), "only these `roles`")
	complete(cmd, "role", roleNames()...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range only {
			if !slices.Contains(roleNames(), name) {
				return usagef("--role is %q: use %s", name, strings.Join(roleNames(), ", "))
			}
		}
		address, err := p.address()
		if err != nil {
			return err
		}
		return p.offline(cmd.Context(), address, func(s store) error {
			granter, ok := s.(stores.Granter)
			if !ok {
				return fmt.Errorf("%s has no roles: every account that can write to the file can do everything, so make it owned by the service's own account", address.Scheme)
			}
			return p.printRoles(granter, only)
		})
	}
	return cmd
}

func (p *program) printRoles(g stores.Granter, only []string) error {
	l := p.newList(nil)
	for _, role := range stores.Roles() {
		if !slices.Contains(only, string(role)) {
			continue
		}
		statements := g.Grants(role)
		if p.output == outputTable {
			if strings.HasPrefix(statements[0], "{") { // an AWS policy
				fmt.Fprintf(p.out, "# %s\n%s\n\n", role, strings.Join(statements, "\n"))
				continue
			}
			fmt.Fprintf(p.out, "-- %s\n%s;\n\n", role, strings.Join(statements, ";\n"))
			continue
		}
		l.add(roleRecord{role, statements})
	}
	return l.close()
}
