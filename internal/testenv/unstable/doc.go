// Package unstable fetches servers that the distribution does not have, or has only in an
// old version, from Debian's distribution "unstable", and unpacks them into a directory of
// the cache. Nothing of the system changes: apt-get runs with a configuration of its own
// that knows of no installed package, so that what a server depends on comes too, the C
// library included, and the programs run with that library's own loader.
//
// It needs apt-get, not root, and takes some seconds, once: later calls find what is there.
// Unstable moves on; remove the directory to fetch what it has now.
package unstable
