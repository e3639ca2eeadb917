package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// FromTemplate makes dir, which must not exist, with the data that a command creates: the
// data directory of a new server. The command runs once for this user; later calls copy what
// it has made, which is much faster. Another program or other arguments make another
// template. create is also called with "", to see what they are.
func FromTemplate(ctx context.Context, name, dir string, create func(dir string) Command) error {
	command := create(dir)
	command.Dir = filepath.Dir(dir)
	info, err := os.Stat(command.Path)
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	key := sha256.Sum256(fmt.Append(nil, command.Path, info.Size(), info.ModTime(), create("").Args))
	template, err := Cached(ctx, name+"-"+hex.EncodeToString(key[:6]), exists, func(ctx context.Context, filled string) error {
		if err := errors.Join(makeFor(dir, command.Account), Run(ctx, command)); err != nil {
			return err
		}
		return errors.Join(os.CopyFS(filled, os.DirFS(dir)), each(filled, syncFile), os.RemoveAll(dir))
	})
	if err != nil {
		return err
	}
	// Servers refuse data that others can read.
	err = errors.Join(makeFor(dir, command.Account), os.CopyFS(dir, os.DirFS(template)), each(dir, command.Account.Chown))
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}

func makeFor(dir string, account *Account) error {
	return errors.Join(os.Mkdir(dir, 0o700), account.Chown(dir))
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// each calls f with the path of a directory and of all that is in it.
func each(dir string, f func(path string) error) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, f(path))
	})
}

// syncFile writes a file to the disk: what is in the cache outlives a crash of the machine.
func syncFile(path string) error {
	file, err := os.Open(path) // #nosec G304 -- in the cache
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
