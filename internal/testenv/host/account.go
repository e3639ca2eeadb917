package host

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// Account is an account to run a server under. Nil means our own.
type Account struct {
	Name     string
	UID, GID uint32
}

// Unprivileged returns the first of the named accounts that exists if this process
// is root, nil (ourselves) if it is not. Some servers refuse to run as root.
func Unprivileged(names ...string) (*Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &Account{Name: name, UID: uint32(uid), GID: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("host: running as root, and none of the accounts %q exists to run the server under", names)
}

// Chown gives a file or directory to the account.
func (a *Account) Chown(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.UID), int(a.GID))
}

func (a *Account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.UID, Gid: a.GID}
}
