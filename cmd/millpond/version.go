package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// versionRecord is the result of version.
type versionRecord struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
}

func (p *program) versionCommand() *cobra.Command {
	return explained(&cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			r := versionRecord{Version: "unknown"}
			if info, ok := debug.ReadBuildInfo(); ok {
				r.Version, r.Go = info.Main.Version, info.GoVersion
				for _, setting := range info.Settings {
					if setting.Key == "vcs.revision" {
						r.Revision = setting.Value
					}
				}
			}
			return p.show(r, func(w io.Writer) {
				fmt.Fprintln(w, strings.Join(strings.Fields("millpond "+r.Version+" "+r.Revision+" "+r.Go), " "))
			})
		},
	}, nil, nil)
}
