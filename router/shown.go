package router

import (
	"net/url"
	"regexp"
	"strings"
)

// shownParameters are parameters of the adapters whose values are not secret. All others are
// hidden: parameters of other adapters, misspelt ones, and the databases' own settings.
var shownParameters = words(`
	capacity when_full key_metadata

	connect_timeout publish_timeout redelivery_delay max_message_bytes delivery_limit time
	tls tls_ca tls_cert tls_server_name

	sasl client_id in_flight_per_partition order offset protocol session_timeout
	rebalance_drain commit_interval commit_distance wait_for_topic partitioner
	create_topics partitions replication

	heartbeat connection_name preset exchange exchange_type queue_type declare retry_delays
	consumer_timeout

	create_streams replicas consumer ack_wait ordered start msg_id

	region endpoint queue sns create_queues visibility wait pollers linger group_metadata
	deduplication_metadata

	migrate prefix busy_timeout synchronous

	millpond_prefix millpond_schema millpond_server max_open_conns pgbouncer
	pool_max_conns pool_min_conns pool_min_idle_conns pool_max_conn_lifetime
	pool_max_conn_lifetime_jitter pool_max_conn_idle_time pool_health_check_period
	sslmode sslrootcert sslcert sslsni target_session_attrs channel_binding
	application_name search_path timezone client_encoding default_query_exec_mode
	statement_timeout lock_timeout idle_in_transaction_session_timeout tcp_user_timeout

	timeout readTimeout writeTimeout charset collation loc parseTime sql_mode
	innodb_lock_wait_timeout interpolateParams maxAllowedPacket rejectReadOnly
`)

func words(text string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

// shownValue matches usual values: words, numbers, durations, names, paths and addresses.
// It does not match a user before a host, or nested parameters.
var shownValue = regexp.MustCompile(`^[\w.,:/{}\[\]' +-]{0,120}$`)

// isShown reports whether a parameter of a URL may be quoted; value is in its original form.
func isShown(name, value string) bool {
	if !shownParameters[name] {
		return false
	}
	plain, err := url.QueryUnescape(value)
	return err == nil && shownValue.MatchString(plain)
}
