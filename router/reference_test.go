package router

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConfigurationReference compares docs/configuration.md with the fields of the file.
func TestConfigurationReference(t *testing.T) {
	const page = "../docs/configuration.md"
	reference := configurationReference()
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(reference), 0o600))
	}
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, string(written), reference, "run: go test ./router -run TestConfigurationReference -update")
}

func configurationReference() string {
	var b strings.Builder
	b.WriteString(`# Configuration

Every field of a [service's file](service.md), made from the code by ` + "`go test ./router -run TestConfigurationReference -update`" + `.
A variable overrides its field. ` + "`millpond config init`" + ` prints a file to begin with, ` + "`millpond config check`" + ` checks one.
The parameters of the two URLs are those of the adapters: [stores](packages.md), [brokers](packages.md).

| field | default | says |
|---|---|---|
`)
	cell := strings.NewReplacer("|", "\\|", "\n", " ", "*", "\\*", "<", "&lt;")
	for _, f := range fields {
		if strings.HasSuffix(f.Path, ".*") {
			continue
		}
		value := ""
		switch {
		case f.Section:
		case f.Default != "":
			value = "`" + f.Default + "`"
		case f.Missing != "":
			value = "required"
		case f.Example != "":
			value = "none; such as `" + f.Example + "`"
		}
		about := cell.Replace(f.About)
		if variable := variableOf(f, exampleDestination); variable != "" {
			about += "<br>`" + variable + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.ReplaceAll(f.Path, "*", "<name>"), strings.ReplaceAll(value, "|", "\\|"), about)
	}
	return b.String()
}
