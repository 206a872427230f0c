#include "commands/commands.h"

#include "base/buf.h"
#include "base/json_out.h"
#include "client/lock_client.h"
#include "config/election_settings.h"
#include "doctor/store_check.h"
#include "process/kernel.h"
#include "service/service.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const verdicts[] = {
	[STORE_GOOD] = "good", [STORE_NOTE] = "note", [STORE_UNSURE] = "UNSURE", [STORE_UNFIT] = "UNFIT"
};
static const char *const words[] = {
	[STORE_GOOD] = "good", [STORE_NOTE] = "note", [STORE_UNSURE] = "unsure", [STORE_UNFIT] = "unfit"
};

/* ---- text: each finding as it is made ---- */

static void print_finding(void *, const struct store_finding *f)
{
	struct buf b = { 0 };

	buf_plain(&b, f->text);
	printf("  %-6s %-8s %s\n", verdicts[f->verdict], f->name, b.data ? b.data : "");
	fflush(stdout);
	buf_fini(&b);
}

static void print_end(const struct store_report *r)
{
	puts(r->fit ? "This store is fit to elect leaders on."
	     : r->unfit
	             ? "This store is NOT fit to elect leaders on: see what is marked UNFIT."
	             : "It is NOT proved that this store is fit to elect leaders on: what is marked UNSURE could not be "
	               "tried.");
}

/* ---- JSON: all at the end ---- */

static void add_finding(void *arg, const struct store_finding *f)
{
	struct buf *b = arg;

	json_out_open(b, NULL, "{");
	json_out_text(b, "name", f->name);
	json_out_text(b, "verdict", words[f->verdict]);
	json_out_text(b, "text", f->text);
	buf_adds(b, "}");
}

static void add_times(struct buf *b, const char *name, const struct store_times *t)
{
	if (!t->n) {
		json_out_raw(b, name, "null");
		return;
	}
	json_out_open(b, name, "{");
	json_out_int(b, "count", t->n);
	json_out_int(b, "median_us", t->median_us);
	json_out_int(b, "p99_us", t->p99_us);
	json_out_int(b, "max_us", t->most_us);
	buf_adds(b, "}");
}

static void print_json(const struct store_report *r, const struct buf *findings)
{
	struct buf b = { 0 };

	json_out_open(&b, NULL, "{");
	json_out_bool(&b, "fit", r->fit);
	json_out_text(&b, "scratch", r->scratch);
	json_out_text(&b, "server", r->server);
	json_out_int(&b, "writers", r->writers);
	json_out_int(&b, "rounds", r->rounds);
	json_out_int(&b, "shortest_lease_ms", r->shortest_ms);
	add_times(&b, "acquisitions", &r->acquisitions);
	add_times(&b, "renewals", &r->renewals);
	add_times(&b, "notices", &r->notices);
	json_out_open(&b, "findings", "[");
	buf_adds(&b, findings->data ? findings->data : "");
	buf_adds(&b, "]}");
	json_t *json = json_loads(b.data, 0, NULL);
	json_dumpf(json, stdout, 0); /* with a space behind each comma and colon, for people */
	puts("");
	json_decref(json);
	buf_fini(&b);
}

/* ---- the Service ---- */

/* As a candidate with this lock would find it. false: it could not keep the address. */
static bool examine_service(const struct options *o, store_found_fn *found, void *arg)
{
	struct lock_client l = { .env.state_dir = options_text(o, OPTION_STATE_DIR, NULL) };
	struct store_finding f = { .name = "service", .verdict = STORE_GOOD };
	const char *lock = o->value[OPTION_LOCK].text;
	struct service_config c = { .env = &l.env,
		                    .target = options_text(o, OPTION_SERVICE, NULL),
		                    .lock = lock,
		                    .name = "",
		                    .address = "",
		                    .address_later = true };
	struct service *s = NULL;
	struct err err;

	if (!*c.target)
		return true;
	if (lock_client_open(&l, NULL, lock, &err) == 0)
		s = service_open(&c, &err);
	if (!s || service_check(s, SERVICE_CHECK_WITHIN, &err) < 0) {
		f.verdict = STORE_UNFIT;
		snprintf(f.text, sizeof f.text, "the Service %s cannot be kept at the leader's address: %.700s",
		         c.target, err.text);
	} else {
		snprintf(
			f.text, sizeof f.text,
			"the Service %s can be kept at the leader's address: it is there, has no selector, and the rights suffice",
			c.target);
	}
	service_free(s);
	lock_client_close(&l);
	found(arg, &f);
	return f.verdict == STORE_GOOD;
}

/* Who leads in a slot behind the last one was told of more slots than this machine. */
static void examine_slots(const struct options *o, int slots, store_found_fn *found, void *arg)
{
	struct store_finding f = { .name = "slots", .verdict = STORE_GOOD };

	snprintf(f.text, sizeof f.text, "nobody leads in a slot behind the %d that there are", slots);
	for (uint32_t i = (uint32_t)slots + 1; i <= ELECTION_SLOTS_MAX; i++) {
		struct lock_client l = { .env.state_dir = options_text(o, OPTION_STATE_DIR, NULL) };
		char *url = election_slot_lock(o->value[OPTION_LOCK].text, i);
		struct err err;
		bool there = lock_client_open(&l, NULL, url, &err) == 0 && lock_client_read(&l) == LOCK_OK;
		if (there && *l.record.holder) {
			f.verdict = STORE_NOTE;
			snprintf(
				f.text, sizeof f.text,
				"%.200s has led in slot %u, so it has more slots than the %d that are said here: give all "
				"candidates one number, since as many lead as the largest says",
				l.record.holder, i, slots);
		}
		lock_client_close(&l);
		free(url);
		if (!there)
			break;
	}
	found(arg, &f);
}

/* Said only where this machine's kernel could not run a term: then no candidate starts here. */
static bool examine_kernel(store_found_fn *found, void *arg)
{
	struct store_finding f = { .name = "kernel", .verdict = STORE_UNFIT };
	struct err err;

	if (kernel_check(&err) == 0)
		return true;
	snprintf(f.text, sizeof f.text, "%.899s", err.text);
	found(arg, &f);
	return false;
}

int cmd_doctor(int argc, char **argv)
{
	struct store_report report;
	struct buf findings = { 0 };
	struct options o;
	struct err err;
	int status = command_begin(&o, COMMAND_DOCTOR, argc, argv);

	if (status >= 0)
		return status;
	if (!options_set(&o, OPTION_LOCK))
		return command_fail(COMMAND_DOCTOR, EXIT_USAGE, "which lock? lunarch doctor --lock URL");
	bool json = options_flag(&o, OPTION_JSON);
	int slots = election_slots(&o, &err);
	if (slots < 0)
		return command_fail(COMMAND_DOCTOR, EXIT_USAGE, "%s", err.text);
	if (store_check_run(o.value[OPTION_LOCK].text, options_text(&o, OPTION_STATE_DIR, NULL),
	                    options_flag(&o, OPTION_FULL), json ? add_finding : print_finding, &findings, &report,
	                    &err) < 0) {
		status = command_fail(COMMAND_DOCTOR, command_status_of(&err), "%s", err.text);
	} else if (report.signal) {
		status = command_fail(COMMAND_DOCTOR, 128 + report.signal, "broken off by signal %d: nothing is proved",
		                      report.signal);
	} else {
		bool runs = examine_kernel(json ? add_finding : print_finding, &findings);
		if (slots)
			examine_slots(&o, slots, json ? add_finding : print_finding, &findings);
		bool served = examine_service(&o, json ? add_finding : print_finding, &findings);
		status = report.fit && runs && served ? EXIT_DONE : EXIT_FAILED_SCRIPT;
		if (json)
			print_json(&report, &findings);
		else
			print_end(&report);
	}
	free(report.scratch);
	buf_fini(&findings);
	return status;
}
