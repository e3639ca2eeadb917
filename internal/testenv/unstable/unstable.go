package unstable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// ErrUnavailable: this machine cannot fetch packages of Debian unstable.
var ErrUnavailable = errors.New("unstable: packages of Debian unstable cannot be fetched from here (it takes apt-get and Debian, or " +
	MirrorVariable + " with the address of a mirror of Debian)")

const fetchTimeout = 10 * time.Minute

// Software is a set of packages that are unpacked together.
type Software struct {
	Name     string   // of the directory in the cache
	Packages []string // what they depend on comes too, but not what they recommend
	Omit     []string // patterns of path.Match: packages that are not fetched, although depended on
	Program  string   // pattern of filepath.Match: a path that the tree must have

	// Prepare changes what was unpacked before anyone sees it; nil: nothing to do. It
	// runs once, and a change to it is not noticed where the tree is there already.
	Prepare func(*Tree) error
}

// Unpack returns the tree with the packages, which it fetches and unpacks if no earlier
// call has. Several processes may call it at once; one does the work, the others wait for
// it. The tree appears as a whole or not at all. It returns an error that is
// ErrUnavailable where this machine offers no way.
func (s Software) Unpack(ctx context.Context) (*Tree, error) {
	cache, err := host.CacheDir()
	if err != nil {
		return nil, fmt.Errorf("unstable: %w", err)
	}
	link := filepath.Join(cache, s.directory())
	if tree, err := open(link); err == nil {
		return tree, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	lock, err := host.AcquireLock(ctx, link+".lock", host.Exclusive)
	if err != nil {
		return nil, fmt.Errorf("unstable: %w", err)
	}
	defer lock.Release()
	if tree, err := open(link); err == nil {
		return tree, nil
	}
	root, err := s.fetch(ctx, link)
	if err != nil {
		if errors.Is(err, ErrUnavailable) {
			return nil, err
		}
		return nil, fmt.Errorf("unstable: fetch %q from Debian unstable: %w", s.Packages, err)
	}
	// The name leads to a directory that is complete, and that has always had its
	// path: scripts in it may name that.
	if err := errors.Join(os.Symlink(filepath.Base(root), link+".new"), os.Rename(link+".new", link)); err != nil {
		return nil, fmt.Errorf("unstable: %w", err)
	}
	return open(link)
}

func (s Software) directory() string {
	key := sha256.Sum256([]byte(strings.Join(s.Packages, " ") + "\x00" + strings.Join(s.Omit, " ")))
	return "unstable-" + s.Name + "-" + hex.EncodeToString(key[:4])
}

// fetch unpacks into a new directory beside link. What an earlier call has left behind
// that did not come to its end is removed.
func (s Software) fetch(ctx context.Context, link string) (root string, err error) {
	leftovers, _ := filepath.Glob(link + "-*")
	for _, path := range append(leftovers, link, link+".new") {
		if err := os.RemoveAll(path); err != nil {
			return "", err
		}
	}
	sources, err := mirrors(ctx)
	if err != nil {
		return "", err
	}
	work, err := os.MkdirTemp("", "millpond-unstable-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	apt, err := newApt(ctx, work, sources)
	if err != nil {
		return "", err
	}
	packages, err := apt.closure(ctx, s.Packages, s.Omit)
	if err != nil {
		return "", err
	}
	debs, err := apt.download(ctx, packages)
	if err != nil {
		return "", err
	}
	if root, err = os.MkdirTemp(filepath.Dir(link), filepath.Base(link)+"-"); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(root)
		}
	}()
	if err := unpack(ctx, debs, root); err != nil {
		return "", err
	}
	return root, s.finish(root, packages)
}

func (s Software) finish(root string, packages []string) error {
	list := strings.Join(packages, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(root, packageList), []byte(list), 0o644); err != nil { // #nosec G306
		return err
	}
	if err := os.Chmod(root, 0o755); err != nil { // #nosec G302 -- other accounts run what is in it
		return err
	}
	tree := &Tree{root: root}
	if _, err := tree.Glob(s.Program); err != nil {
		return err
	}
	if s.Prepare == nil {
		return nil
	}
	return s.Prepare(tree)
}

// unpack puts the files of all packages below root.
func unpack(ctx context.Context, debs []string, root string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for _, deb := range debs {
		group.Go(func() error {
			return host.Run(ctx, host.Command{Path: "dpkg-deb", Args: []string{"--extract", deb, root}, Env: os.Environ()})
		})
	}
	return group.Wait()
}

func open(link string) (*Tree, error) {
	root, err := filepath.EvalSymlinks(link)
	if err != nil {
		return nil, err
	}
	return &Tree{root: root}, nil
}
