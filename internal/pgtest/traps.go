package pgtest

// Hijacks is what somebody who may create objects in public, and owns no table, plants so
// that statements of others run it: better matches than the server's own functions and
// operators, each of which notes who has run it.
const Hijacks = `
CREATE TABLE public.hijacked (who text, what text);
GRANT ALL ON public.hijacked TO public;
CREATE FUNCTION public.note(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.hijacked VALUES (current_user, what); RETURN what; END $$;
CREATE FUNCTION public.same(a oid, b regclass) RETURNS boolean LANGUAGE sql AS 'SELECT public.note(''='') IS NOT NULL AND a OPERATOR(pg_catalog.=) b::oid';
CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.same);
CREATE FUNCTION public.to_json(text[]) RETURNS json LANGUAGE sql AS 'SELECT pg_catalog.to_json(pg_catalog.to_json($1)) WHERE public.note(''to_json'') IS NOT NULL';
CREATE FUNCTION public.jsonb_build_object(a text, b timestamptz, c text, d text, e text, f text) RETURNS jsonb LANGUAGE sql AS 'SELECT ''{}''::jsonb WHERE public.note(''jsonb_build_object'') IS NOT NULL';
CREATE FUNCTION public.hashtextextended(text, integer) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint WHERE public.note(''hashtextextended'') IS NOT NULL';
CREATE FUNCTION public.pg_try_advisory_xact_lock(text) RETURNS boolean LANGUAGE sql AS 'SELECT public.note(''pg_try_advisory_xact_lock'') IS NULL';
CREATE FUNCTION public.pg_notify(varchar, varchar) RETURNS void LANGUAGE sql AS 'SELECT NULL::void';
CREATE FUNCTION public.sum(a smallint, b integer) RETURNS integer LANGUAGE sql AS 'SELECT a::integer WHERE public.note(''+'') IS NOT NULL';
`

// Traps makes the schema traps, with a twin of every function, operator, aggregate and type
// of the server's that a statement could mean. Each twin raises an error.
const Traps = `
CREATE SCHEMA traps;
CREATE FUNCTION traps.trapped(bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'an aggregate of traps was run'; END $$;
CREATE FUNCTION traps.trapped(bigint, anyelement) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'an aggregate of traps was run'; END $$;
DO $$
DECLARE p record;
BEGIN
	FOR p IN SELECT proname, pg_get_function_identity_arguments(oid) AS args, pg_get_function_result(oid) AS result
		FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND prorettype <> 'internal'::regtype
		AND NOT 'internal'::regtype = ANY (proargtypes::oid[])
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION traps.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', p.proname, p.args, p.result,
				format('BEGIN RAISE EXCEPTION %L; END', 'the function ' || p.proname || ' of traps was run'));
		EXCEPTION WHEN OTHERS THEN NULL; -- one that nobody calls by name
		END;
	END LOOP;
	FOR p IN SELECT o.oprname, NULLIF(o.oprleft, 0)::regtype AS l, o.oprright::regtype AS r, f.proname
		FROM pg_operator o JOIN pg_proc f ON f.oid = o.oprcode WHERE o.oprnamespace = 'pg_catalog'::regnamespace
	LOOP
		BEGIN
			EXECUTE format('CREATE OPERATOR traps.%s (%s RIGHTARG = %s, FUNCTION = traps.%I)', p.oprname,
				CASE WHEN p.l IS NOT NULL THEN format('LEFTARG = %s,', p.l) END, p.r, p.proname);
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
END $$;
CREATE AGGREGATE traps.count(*) (SFUNC = traps.trapped, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE traps.count(anyelement) (SFUNC = traps.trapped, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE traps.min(anyelement) (SFUNC = traps.trapped, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE traps.max(anyelement) (SFUNC = traps.trapped, STYPE = bigint, INITCOND = '0');
CREATE DOMAIN traps.text AS pg_catalog.text CHECK (false);
CREATE DOMAIN traps.bytea AS pg_catalog.bytea CHECK (false);
CREATE DOMAIN traps.jsonb AS pg_catalog.jsonb CHECK (false);
CREATE DOMAIN traps.timestamptz AS pg_catalog.timestamptz CHECK (false);
CREATE DOMAIN traps.xid AS pg_catalog.xid CHECK (false);
CREATE TABLE traps.pg_class (oid oid);
CREATE TABLE traps.pg_settings (name text);
`
