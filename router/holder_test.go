package router_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
)

// holder is a struct of a program: fmt calls no methods of what it holds, but for Exported.
type holder struct {
	config   router.Config
	pointer  *router.Config
	url      router.URL
	list     []router.StoreConfig
	byName   map[string]router.BrokerConfig
	key      stores.FingerprintKey
	inboxed  middleware.InboxConfig
	anything any
	Exported router.Config
}

// However somebody prints what holds a configuration, the secrets are not in it.
func TestHoldersOfAConfigurationPrintNoSecrets(t *testing.T) {
	c := secretive()
	key := stores.NewFingerprintKey(7, []byte(canary))
	inboxed := middleware.InboxConfig{Service: "billing", Fingerprint: middleware.FingerprintConfig{Key: key}}
	r := newRig(t)
	mine := r.config()
	mine.Broker.URL = router.NewURL("lasting://app:" + canary + "@h")
	mine.FingerprintKey = router.NewSecret(canary)
	svc := r.service(mine)
	t.Cleanup(func() { require.NoError(t, svc.Close()) })
	inbox, err := middleware.NewInbox(svc.Store(), inboxed)
	require.NoError(t, err)
	h := holder{
		config: c, pointer: &c, url: c.Store.URL, list: []router.StoreConfig{c.Store}, byName: map[string]router.BrokerConfig{"a": c.Broker},
		key: key, inboxed: inboxed, anything: c.Inbox, Exported: c,
	}
	for name, value := range map[string]any{
		"holder": h, "pointer": &h, "any": []any{h, &h}, "map": map[string]any{"h": h},
		"service": svc, "services": []*router.Service{svc}, "inbox": inbox, "holder of an inbox": struct{ in *middleware.Inbox }{inbox},
		"key": key, "pointer to a key": &key, "inbox config": inboxed, "pointer to an inbox config": &inboxed,
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			text := fmt.Sprintf(verb, value)
			for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), fmt.Sprint([]byte(canary)), fmt.Sprintf("%#v", []byte(canary))} {
				require.NotContains(t, text, form, "%s printed by %s", name, verb)
			}
		}
	}
	require.Contains(t, fmt.Sprintf("%+v", svc), "shop")
	require.Contains(t, fmt.Sprintf("%+v", inbox), "billing")
	require.Contains(t, fmt.Sprintf("%+v", key), "7")
}

// Values are compared by what they say, and texts become them in other decoders too.
func TestURLsAndSecretsAreValues(t *testing.T) {
	one, same := router.NewURL("memory://"), router.NewURL("memory://")
	require.Equal(t, one, same)
	require.NotEqual(t, router.NewURL("memory://"), router.NewURL("memory://?capacity=3"))
	require.Equal(t, router.URL{}, router.NewURL(""))
	require.Equal(t, router.Secret{}, router.NewSecret(""))
	var u router.URL
	require.NoError(t, u.UnmarshalText([]byte("kafka://u:"+canary+"@h")))
	require.Equal(t, "kafka://u:"+canary+"@h", u.Reveal())
	var s router.Secret
	require.NoError(t, s.UnmarshalText([]byte(canary)))
	require.Equal(t, canary, s.Reveal())
}
