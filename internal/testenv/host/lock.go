package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
)

// ErrLocked is returned by [TryLock] while another holder has the file.
var ErrLocked = errors.New("host: file is locked")

// LockMode says who else may hold the lock.
type LockMode int

const (
	Shared    LockMode = syscall.LOCK_SH
	Exclusive LockMode = syscall.LOCK_EX
)

// FileLock is an advisory lock that the kernel gives back when the last process
// that has the file open ends, however it ends. It needs no clean-up after a crash.
type FileLock struct{ file *os.File }

// TryLock locks the file, creating it if need be, or returns ErrLocked at once.
func TryLock(path string, mode LockMode) (*FileLock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("host: lock: %w", err)
	}
	for {
		err = syscall.Flock(int(file.Fd()), int(mode)|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return &FileLock{file}, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = ErrLocked
	default:
		err = fmt.Errorf("host: lock %s: %w", path, err)
	}
	return nil, errors.Join(err, file.Close())
}

// AcquireLock waits for the lock until ctx ends.
func AcquireLock(ctx context.Context, path string, mode LockMode) (*FileLock, error) {
	for {
		lock, err := TryLock(path, mode)
		if !errors.Is(err, ErrLocked) {
			return lock, err
		}
		if !pause.Sleep(ctx, pollInterval) {
			return nil, fmt.Errorf("host: waiting for the lock %s: %w", path, context.Cause(ctx))
		}
	}
}

// File returns the open file. A process that inherits it shares the lock and keeps
// it after Release.
func (l *FileLock) File() *os.File { return l.file }

// Release gives up this process's share of the lock.
func (l *FileLock) Release() error { return l.file.Close() }

const pollInterval = 20 * time.Millisecond
