package stores

// Role is the purpose of a database account.
type Role string

const (
	RoleMigrator Role = "migrator" // creates and changes the tables, and owns them if the database has owners
	RoleRuntime  Role = "runtime"  // runs a service: everything except changing the tables
	RoleOperator Role = "operator" // shows and repairs messages, payloads included
	RoleReadOnly Role = "readonly" // counts and lists, without the content of messages
)

// Roles returns all roles, the most powerful first.
func Roles() []Role { return []Role{RoleMigrator, RoleRuntime, RoleOperator, RoleReadOnly} }

// Granter is implemented by stores whose database has accounts.
type Granter interface {
	// Grants returns the statements that create a role of that name, after the prefix of the
	// tables, and grant exactly what it needs. They may be repeated, and must be after each
	// migration. It does no I/O.
	Grants(r Role) []string
}
