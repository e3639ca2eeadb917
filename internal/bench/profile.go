package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profileCPU profiles until the function that it returns is called. Without a file
// name it does nothing.
func profileCPU(file string) (end func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file) //nolint:gosec // where the user wants it
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// profileAllocs writes what was allocated since the start. Without a file name it
// does nothing.
func profileAllocs(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Create(file) //nolint:gosec // where the user wants it
	if err != nil {
		return err
	}
	runtime.GC() // which brings the profile up to date
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
