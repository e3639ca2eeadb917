package postgres

import (
	"strings"
	"testing"
)

func TestConf(t *testing.T) {
	conf := Config{Settings: map[string]string{
		"fsync": "off", "port": "1", "listen_addresses": "*", "application_name": "it's",
	}}.conf()
	for _, want := range []string{"fsync = 'off'\n", "listen_addresses = '127.0.0.1'\n", "application_name = 'it''s'\n", "wal_level = 'logical'\n"} {
		if !strings.Contains(conf, want) {
			t.Errorf("%q is not in\n%s", want, conf)
		}
	}
	if strings.Contains(conf, "port") {
		t.Errorf("a port is in\n%s", conf)
	}
}

func TestDatabaseURLs(t *testing.T) {
	if _, err := CreateDatabase(t.Context(), "host=127.0.0.1 password=secret"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("not a URL: %v", err)
	}
}
