package urlquery_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/urlquery"
)

type mode string

type fields struct {
	text          string
	on, newest    bool
	mode          mode
	count         int
	timeout       time.Duration
	transportSafe urlquery.TLS
}

func read(t *testing.T, query string) (fields, error) {
	t.Helper()
	var f fields
	setters := map[string]urlquery.Setter{
		"text":    urlquery.Text(&f.text),
		"on":      urlquery.Bool(&f.on),
		"offset":  urlquery.Choice(&f.newest, "oldest", "newest"),
		"mode":    urlquery.OneOf(&f.mode, "fast", "slow"),
		"count":   urlquery.Positive(&f.count),
		"timeout": urlquery.Duration(&f.timeout),
	}
	f.transportSafe.AddTo(setters)
	return f, errors.Join(urlquery.Read("pkg", &url.URL{RawQuery: query}, setters)...)
}

func TestRead(t *testing.T) {
	f, err := read(t, "text=a%26b&on=true&offset=newest&mode=slow&count=32&timeout=1m30s&tls_ca=ca.pem")
	want := fields{"a&b", true, true, "slow", 32, 90 * time.Second, urlquery.TLS{CA: "ca.pem"}}
	if err != nil || f != want {
		t.Errorf("got %+v, %v", f, err)
	}
	if f, err := read(t, ""); err != nil || f != (fields{}) {
		t.Errorf("an empty query became %+v, %v", f, err)
	}
}

func TestReadNamesEveryMistake(t *testing.T) {
	_, err := read(t, "on=yes&offset=middle&mode=medium&count=0&timeout=10&text=a&text=b&cuont=1&p%40ss=s3cret&%zz")
	for _, says := range []string{
		`pkg: the URL's query cannot be parsed`,
		`pkg: parameter "on" is "yes": use false or true`,
		`pkg: parameter "offset" is "middle": use oldest or newest`,
		`pkg: parameter "mode" is "medium": use fast or slow`,
		`pkg: parameter "count" is "0": use a positive number`,
		`pkg: parameter "timeout" is "10": use a duration such as 500ms`,
		`pkg: parameter "text" is given 2 times, as ["a" "b"]: give it once`,
		`pkg: parameter "cuont" is not known: remove it or use one of count, mode, offset, on, text, timeout, tls`,
		`pkg: parameter (a name that is not shown) is not known`,
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the errors do not say %q:\n%v", says, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the errors repeat a value of an unknown parameter: %v", err)
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	notPEM := filepath.Join(dir, "not.pem")
	if err := os.WriteFile(notPEM, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tls  urlquery.TLS
		says string
	}{
		"off":                {urlquery.TLS{}, ""},
		"on":                 {urlquery.TLS{On: true, ServerName: "broker"}, ""},
		"off, with a file":   {urlquery.TLS{CA: "ca.pem"}, "add tls=true"},
		"no such file":       {urlquery.TLS{On: true, CA: filepath.Join(dir, "none.pem")}, `parameter "tls_ca"`},
		"no certificate":     {urlquery.TLS{On: true, CA: notPEM}, "no certificate in"},
		"a key without cert": {urlquery.TLS{On: true, Key: notPEM}, `"tls_cert" and "tls_key"`},
	} {
		config, errs := c.tls.Config("pkg")
		err := errors.Join(errs...)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: the error is %v", name, err)
		}
		if (config != nil) != c.tls.On {
			t.Errorf("%s: the configuration is %v", name, config)
		}
	}
}
