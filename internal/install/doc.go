// Package install tries README's commands in a module that has nothing yet: what a reader
// types first has to work. All of it is in the tests.
//
//	proxy_test.go     this tree as a module, as a registry would hand it out
//	readme_test.go    the commands, and the code between them
//	module_test.go    a module that has nothing yet
package install
