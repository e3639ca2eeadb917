package install

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// blankModule is a module of somebody who has not heard of millpond.
type blankModule struct {
	dir string
	env []string
}

// published is this tree as the latest version of millpond, which is compiled once.
type published struct{ proxies, others string }

func publish(t *testing.T) published {
	t.Helper()
	settings := goEnv(t, "GOPROXY", "GOMODCACHE")
	proxy, version := newProxy(t)
	t.Cleanup(func() { forget(t, settings["GOMODCACHE"], version) })
	return published{"file://" + filepath.ToSlash(proxy) + "," + withoutDirect(settings["GOPROXY"]), settings["GOPROXY"]}
}

// newBlankModule makes one that gets the tree, and all else from the machine's own module proxy,
// into its own cache.
func (p published) newBlankModule(t *testing.T) *blankModule {
	t.Helper()
	m := &blankModule{dir: t.TempDir()}
	m.env = append(os.Environ(),
		"GOPROXY="+p.proxies,
		"GONOSUMDB="+modulePath, // nobody else has seen this tree
		"GOPRIVATE=", "GONOPROXY=none", "GOWORK=off",
		"GOFLAGS=-modcacherw", // so that forget can
	)
	m.run(t, "go mod init example.com/blank")
	return m
}

// withoutDirect leaves the proxies: packages of ours are looked for as modules of their
// own, too, and no repository has to answer to that.
func withoutDirect(proxies string) string {
	each := strings.FieldsFunc(proxies, func(r rune) bool { return r == ',' || r == '|' })
	each = slices.DeleteFunc(each, func(p string) bool { return p == "direct" || p == "off" })
	if len(each) == 0 {
		return proxies // there are none
	}
	return strings.Join(append(each, "off"), ",")
}

func goEnv(t *testing.T, names ...string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"env", "-json"}, names...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go env: %v\n%s", err, stderr(err))
	}
	settings := make(map[string]string)
	if err := json.Unmarshal(out, &settings); err != nil {
		t.Fatal(err)
	}
	return settings
}

// forget removes what the go command has kept of this tree.
func forget(t *testing.T, cache, version string) {
	t.Helper()
	downloads := filepath.Join(cache, "cache", "download", filepath.FromSlash(modulePath), "@v")
	kept, err := filepath.Glob(filepath.Join(downloads, version+".*"))
	if err != nil {
		t.Error(err)
	}
	kept = append(kept, filepath.Join(cache, filepath.FromSlash(modulePath)+"@"+version), filepath.Join(downloads, "list"))
	for _, name := range kept {
		if err := os.RemoveAll(name); err != nil {
			t.Error(err)
		}
	}
}

func (m *blankModule) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs a command as it stands in a document. None of them needs a shell.
func (m *blankModule) run(t *testing.T, command string) string {
	t.Helper()
	words := strings.Fields(command)
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Dir, cmd.Env = m.dir, m.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}
