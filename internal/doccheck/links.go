package doccheck

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
)

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	targets    = []*regexp.Regexp{
		regexp.MustCompile(`\]\(<?([^)<>\s]+)>?(?:\s+"[^"]*")?\)`), // [text](target "title")
		regexp.MustCompile(`^\s*\[[^\]]+\]:\s*<?([^<>\s]+)>?`),     // [text]: target
		regexp.MustCompile(`(?:src|href)="([^"]+)"`),
	}
)

// checkLinks reports links to files and headings that do not exist. Links to other
// sites are not followed.
func checkLinks(tree fs.FS, docs []*document, doc *document) []Problem {
	var problems []Problem
	for _, l := range doc.prose {
		text := inlineCode.ReplaceAllString(l.text, "")
		for _, pattern := range targets {
			for _, found := range pattern.FindAllStringSubmatch(text, -1) {
				if why := brokenLink(tree, docs, doc, found[1]); why != "" {
					problems = append(problems, Problem{doc.name, l.number, fmt.Sprintf("the link to %s is broken: %s", found[1], why)})
				}
			}
		}
	}
	return problems
}

func brokenLink(tree fs.FS, docs []*document, doc *document, target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "it is no URL"
	}
	if u.Scheme != "" || u.Host != "" {
		return ""
	}
	name := doc.name
	switch {
	case strings.HasPrefix(u.Path, "/"):
		name = path.Clean(strings.TrimPrefix(u.Path, "/"))
	case u.Path != "":
		name = path.Join(path.Dir(doc.name), u.Path)
	}
	if !fs.ValidPath(name) {
		return "it leaves the repository"
	}
	if _, err := fs.Stat(tree, name); err != nil {
		return "there is no " + name
	}
	if u.Fragment == "" {
		return ""
	}
	for _, other := range docs {
		if other.name == name && !other.anchors[u.Fragment] {
			return fmt.Sprintf("%s has no heading #%s", name, u.Fragment)
		}
	}
	return ""
}
