// Package testenv is the test environment: real servers for tests, without a
// container engine and without anything to set up.
//
//	func TestSomething(t *testing.T) {
//		url := testenv.Postgres(t).NewDatabase(t) // empty, dropped when the test ends
//		…
//	}
//
// [Postgres] is one server that all packages of a test run share; a test gets a
// database of its own in it. [VolatilePostgres] does not wait for the disk. [PrivatePostgres] is a server for one test, which may
// kill and restart it or change its settings. A missing server is installed where
// that is possible without asking; where it is not, the test fails with a sentence
// that says what to do. It is never skipped. [Eventually] waits for what happens in
// another process.
//
// The parts, for whoever adds another server:
//   - package host: processes, accounts, directories, ports, installation;
//   - package unstable: servers of Debian unstable, unpacked beside the system;
//   - package shared: one server for all packages of a run;
//   - one package per server, such as postgres, which returns errors and does not
//     import package testing, so that benchmarks can use it;
//   - one file per server here, which is that package for tests.
package testenv
