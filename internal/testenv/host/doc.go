// Package host does what it takes to run a server on this machine for a test:
// processes that never outlive their parent, an account to run them under,
// directories that a killed test does not leave behind for ever, ports, file locks
// and the installation of missing packages.
//
// It knows no particular server and does not import package testing, so that
// benchmarks and other programs can use it too.
package host
