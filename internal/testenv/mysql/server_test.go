package mysql

import (
	"slices"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	for _, product := range []Product{MariaDB, MySQL} {
		options := Config{Product: product, Settings: map[string]string{
			"sync-binlog": "0", "port": "1", "bind-address": "*", "sql_mode": "A,B",
		}}.options()
		for _, want := range []string{"--sync_binlog=0", "--innodb_flush_log_at_trx_commit=1", "--sql_mode=A,B"} {
			if !slices.Contains(options, want) {
				t.Errorf("%s: %s is not in %v", product, want, options)
			}
		}
		if all := strings.Join(options, " "); strings.Contains(all, "port") || strings.Contains(all, "bind") || strings.Contains(all, "sync_binlog=1") {
			t.Errorf("%s: the options are %v", product, options)
		}
	}
}

func TestParseURL(t *testing.T) {
	config, err := ParseURL("mysql://someone:p%40ss@127.0.0.1:3307/orders?timeout=3s&clientFoundRows=true")
	if err != nil {
		t.Fatal(err)
	}
	if config.User != "someone" || config.Passwd != "p@ss" || config.Addr != "127.0.0.1:3307" || config.DBName != "orders" || !config.ClientFoundRows {
		t.Errorf("the configuration is %s", config.FormatDSN())
	}
	for _, wrong := range []string{"root:secret@tcp(127.0.0.1:3306)/x", "mysql:///secret", "postgres://root:secret@127.0.0.1/x", "mysql://root:secret@127.0.0.1/?timeout=soon"} {
		if _, err := ParseURL(wrong); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestDropRefusesWhatIsNotOurs(t *testing.T) {
	for _, url := range []string{"mysql://root@127.0.0.1:1/mysql", "mysql://root@127.0.0.1:1/millpond_test_`"} {
		if err := DropDatabase(t.Context(), url, url); err == nil || !strings.Contains(err.Error(), "not one of ours") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
