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
	Text    string        `config:"text"`
	On      bool          `config:"on"`
	Newest  bool          `config:"offset" check:"oldest|newest"`
	AsIs    bool          `config:"declare" check:"true|false"`
	Mode    mode          `config:"mode" check:"fast|slow"`
	Below   below         `config:""`
	Timeout time.Duration `config:"timeout" check:"positive"`
	Free    any
}

type below struct {
	Count int          `config:"count" check:"1..64"`
	TLS   urlquery.TLS `config:""`
}

func read(t *testing.T, query string) (fields, error) {
	t.Helper()
	var f fields
	return f, errors.Join(urlquery.Read("pkg", &url.URL{RawQuery: query}, urlquery.Fields(&f))...)
}

func TestRead(t *testing.T) {
	f, err := read(t, "text=a%26b&on=true&offset=newest&declare=false&mode=slow&count=32&timeout=1m30s&tls_ca=ca.pem")
	want := fields{"a&b", true, true, true, "slow", below{32, urlquery.TLS{CA: "ca.pem"}}, 90 * time.Second, nil}
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
		`pkg: parameter "on" is "yes": use true or false`,
		`pkg: parameter "offset" is "middle": use oldest or newest`,
		`pkg: parameter "mode" is "medium": use fast or slow`,
		`pkg: parameter "count" is "0": use a number from 1 to 64`,
		`pkg: parameter "timeout" is "10": use a duration such as 500ms`,
		`pkg: parameter "text" is given 2 times, as ["a" "b"]: give it once`,
		`pkg: parameter "cuont" is not known: remove it or use one of count, declare, mode, offset, on, text, timeout, tls`,
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

// TestCheck: what a program sets is checked by the same tags, under the name that it knows.
func TestCheck(t *testing.T) {
	f := fields{Mode: "medium", Timeout: -time.Second, Below: below{Count: 65}}
	more := func(wrong urlquery.Wrong) { wrong("Free", "odd", "make it even") }
	for named, want := range map[string]string{
		"go":  "pkg: Config.Below.Count is 65: use a number from 1 to 64\npkg: Config.Free is odd: make it even\npkg: Config.Mode is \"medium\": use fast or slow\npkg: Config.Timeout is -1s: use a positive duration such as 500ms, 30s or 24h",
		"url": "pkg: parameter \"count\" is 65: use a number from 1 to 64\npkg: parameter \"mode\" is \"medium\": use fast or slow\npkg: parameter \"timeout\" is -1s: use a positive duration such as 500ms, 30s or 24h\npkg: the list of free in the URL is odd: make it even",
	} {
		names := urlquery.InURL(&f)
		if named == "go" {
			names = urlquery.InGo
		}
		if err := urlquery.Check("pkg", &f, names, more); err == nil || err.Error() != want {
			t.Errorf("%s: got\n%v", named, err)
		}
	}
	if err := urlquery.Check("pkg", new(fields), urlquery.InGo, nil); err != nil {
		t.Error(err)
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
