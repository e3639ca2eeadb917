package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// documented is a command of a document, as its reader types it.
type documented struct{ where, text string }

var (
	marked = regexp.MustCompile("(?ms)^<!-- run: cmd/millpond/documents_test.go TestCommandsOfTheDocuments\\b[^\n]*\n```sh\n(.*?)^```")
	typed  = regexp.MustCompile(`^(?:go run \S*cmd/millpond|go tool millpond|millpond) (.*)`)
	inText = regexp.MustCompile("`(?:go tool )?millpond ([a-z][^`\n]*)`")
	word   = regexp.MustCompile(`"([^"]*)"|'([^']*)'|(\S+)`)
)

// TestCommandsOfTheDocuments runs every command that a document shows in a block of its own, each
// in a store that has what the command names.
func TestCommandsOfTheDocuments(t *testing.T) {
	var commands []documented
	eachDocument(t, func(name, text string) {
		for _, block := range marked.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(block[1]) {
				if m := typed.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
					commands = append(commands, documented{name, m[1]})
				}
			}
		}
	})
	require.Greater(t, len(commands), 25, "the documents show commands")
	for _, c := range commands {
		t.Run(c.where+" "+c.text, func(t *testing.T) { tryDocumented(t, c.text) })
	}
}

// TestCommandsThatDocumentsName: what a sentence calls a command is one, with its flags.
func TestCommandsThatDocumentsName(t *testing.T) {
	root := (&program{console: newConsole()}).root()
	root.InitDefaultCompletionCmd()
	eachDocument(t, func(name, text string) {
		for _, m := range inText.FindAllStringSubmatch(text, -1) {
			if words := strings.Fields(m[1]); !known(root, words) {
				t.Errorf("%s: there is no %q", name, "millpond "+m[1])
			}
		}
	})
}

// known goes down the commands as far as words name them: the first one and the flags have to be there.
func known(root *cobra.Command, words []string) bool {
	cmd, _, err := root.Find(words)
	if err != nil || cmd == root {
		return words[0] == "help"
	}
	rest := words[strings.Count(cmd.CommandPath(), " "):]
	if cmd.HasSubCommands() && len(rest) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(rest[0]) {
		return false // a verb that the command does not have
	}
	for _, w := range rest {
		flag, _, _ := strings.Cut(strings.TrimPrefix(w, "--"), "=")
		if strings.HasPrefix(w, "--") && cmd.Flags().Lookup(flag) == nil && cmd.InheritedFlags().Lookup(flag) == nil {
			return flag == "help"
		}
	}
	return true
}

// tryDocumented runs one command in a world of its own.
func tryDocumented(t *testing.T, text string) {
	dir := t.TempDir()
	database := "sqlite://" + filepath.ToSlash(filepath.Join(dir, "test.db"))
	w := newWorld(t, database)
	shown := fillAsDocumented(w)
	file := filepath.Join(dir, "millpond.yaml")
	require.NoError(t, os.WriteFile(file, []byte("service: billing\nbroker: {url: \"memory://\"}\nstore: {url: \""+database+"\"}\n"), 0o600))
	shown["millpond.yaml"], shown["postgres://billing@db/orders"] = file, database
	if strings.HasPrefix(text, "outbox ") {
		shown["4711"] = shown["an output"]
	}

	text, _, _ = strings.Cut(text, "#")
	text, _, _ = strings.Cut(text, " | ") // what reads the output is the reader's
	var args []string
	for _, m := range word.FindAllStringSubmatch(text, -1) {
		arg := m[1] + m[2] + m[3]
		if mine, ok := shown[arg]; ok {
			arg = mine
		}
		args = append(args, arg)
	}
	if strings.HasPrefix(text, "roles") && !slices.Contains(args, "--store") {
		args = append(args, "--store", "postgres://") // SQLite has none
	}
	w.terminal("y\n")
	w.ok(args...)
}

// fillAsDocumented gives a store what documents name, and returns the numbers that it has here.
func fillAsDocumented(w *world) map[string]string {
	w.t.Helper()
	for _, c := range []stores.Consumer{{Service: "billing", Handler: "mark-paid"}, {Service: "shop", Handler: "stock"}} {
		require.NoError(w.t, w.store.Register(w.t.Context(), stores.Registration{Consumer: c, Topic: "orders"}))
		due := failure(c, "due", "its worker was killed")
		due.Status = stores.StatusPending
		w.fail(due)
		w.fail(failure(c, "sofa", "there is no item"))
	}
	_, err := w.store.Due(w.t.Context(), stores.DueQuery{Consumer: stores.Consumer{Service: "billing", Handler: "mark-paid"}, Limit: 1, Reserve: time.Hour})
	require.NoError(w.t, err)
	w.fails(2, charge, "card refused")
	ofPerson := failure(charge, "", "of a person")
	id, err := parseID("u:0190163d-8694-739b-aea5-966c26f8ad91")
	require.NoError(w.t, err)
	ofPerson.Key.ID = id
	w.fail(ofPerson)
	ofCustomer := failure(charge, "ordered", "later")
	ofCustomer.OrderKey = []byte("customer-4711")
	w.fail(ofCustomer)
	for _, id := range []string{"card refused-0", "card refused-1"} {
		w.quarantine(id, "another one")
	}
	eu := w.outbox("kafka-eu", "a", "b", "c")
	w.settle(stores.Settlement{Published: eu[2:], Keep: true, Refused: []stores.RefusedOutput{
		{Number: eu[0], Attempts: 20, Error: "unknown topic", Failed: true}, {Number: eu[1], Attempts: 1, Error: "too large", Failed: true},
	}})
	cause, _ := w.objects("cause", "ls", "--consumer", charge.String())[0]["cause"].(string)
	message := w.objects("msg", "ls", "--consumer", charge.String(), "--cause", cause)[0]
	held := w.objects("quarantine", "ls")
	return map[string]string{
		"8d3f21c0a9b4": cause, "4711": itoa(message["number"]), "17": itoa(held[0]["row"]), "18": itoa(held[1]["row"]), "an output": itoa(float64(eu[0])),
	}
}

// eachDocument calls f with every Markdown file of the repository.
func eachDocument(t *testing.T, f func(name, text string)) {
	t.Helper()
	const root = "../.."
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		f(filepath.ToSlash(name), string(text))
		return err
	}))
}
