package stores

// Role is what an account of a database is for.
type Role string

const (
	RoleMigrator Role = "migrator" // makes and changes the tables, and owns them where the database has owners
	RoleRuntime  Role = "runtime"  // runs a service: all but changing the tables
	RoleOperator Role = "operator" // shows and repairs messages, payloads included
	RoleReadOnly Role = "readonly" // counts and lists, without the content of messages
)

// Roles returns all roles, the mightiest first.
func Roles() []Role { return []Role{RoleMigrator, RoleRuntime, RoleOperator, RoleReadOnly} }

// Granter is implemented by stores whose database has accounts.
type Granter interface {
	// Grants returns the statements that make a role of that name, behind the prefix of the
	// tables, and give it what it needs and no more. They may be repeated, and have to be
	// after each migration. It does no I/O.
	Grants(r Role) []string
}
