/* In which order the actions of a term are carried out, and what stands in the page by then. */
#include "term/term_effects.h"

#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TERM 7

static struct page *page;
static struct term_hooks h = { .term = TERM, .token = 70 };
static char did[400];
static bool swept;

static void note(const char *what)
{
	strcat(did, what);
	strcat(did, " ");
}

static struct page *the_page(void *)
{
	note("page");
	return page;
}

static void changed(void *, enum term_page_news what)
{
	static const char *const names[] = {
		[TERM_PAGE_LATER] = "later", [TERM_PAGE_POKE] = "poke", [TERM_PAGE_INTERRUPT] = "interrupt"
	};
	note(names[what]);
}

static void tell(void *, struct term_event e)
{
	note(e.kind == TERM_EV_REFUSED                              ? "tell-refused"
	     : e.kind == TERM_EV_SWEPT && e.term == TERM && e.clean ? "tell-swept"
	                                                            : "tell-another");
}

#define NOTES(name)                                     \
	static void name(void *, struct term_actions *) \
	{                                               \
		note(#name);                            \
	}
NOTES(timer_off)
NOTES(allow)
NOTES(drain)
NOTES(stop)
NOTES(clean_up)
NOTES(ask)
NOTES(saved)
NOTES(log_it)
NOTES(kill_it)
NOTES(timer)
NOTES(began)
NOTES(over)
NOTES(answer)
NOTES(save)
NOTES(end)
NOTES(next_term)
NOTES(report)
NOTES(finished)
NOTES(refused)

static void lead(void *, struct term_actions *a)
{
	note(a->set & TERM_DO_PAGE_BEGIN && page->slot[0].kill_boot ? "lead" : "lead-without-deadline");
}

static void sweep(void *, struct term_actions *a)
{
	note("sweep");
	a->swept = swept;
}

static const struct term_effects all = { .page = the_page,
	                                 .page_changed = changed,
	                                 .timer_off = timer_off,
	                                 .allow = allow,
	                                 .lead = lead,
	                                 .drain = drain,
	                                 .stop = stop,
	                                 .clean_up = clean_up,
	                                 .ask = ask,
	                                 .saved = saved,
	                                 .log = log_it,
	                                 .kill = kill_it,
	                                 .sweep = sweep,
	                                 .timer = timer,
	                                 .began = began,
	                                 .over = over,
	                                 .answer = answer,
	                                 .save = save,
	                                 .end = end,
	                                 .next_term = next_term,
	                                 .report = report,
	                                 .finished = finished,
	                                 .refused = refused,
	                                 .tell = tell };

static void carry_out(unsigned set, const struct term_effects *f)
{
	struct instant now = clock_now();
	struct term_actions a = { .set = set, .end = instant_add(now, 60 * NSEC_PER_SEC) };

	a.kill = instant_add(a.end, NSEC_PER_SEC);
	*did = '\0';
	term_carry_out(&h, 0, &a, f, NULL);
}

int main(void)
{
	const struct term_effects few = { .page = the_page, .page_changed = changed, .over = over };
	int fd[PAGE_FILES];
	struct err err;
	struct page *made = page_new(1, fd, &err);

	if (!made)
		printf("Bail out! %s\n", err.text), exit(1);
	page = made;
	carry_out(TERM_DO_PAGE_BEGIN | TERM_DO_POKE | TERM_DO_LEAD, &all);
	is_str(did, "page poke lead ", "the deadline is in the page before the guard looks, and then the worker leads");
	carry_out(TERM_DO_PAGE_STOP | TERM_DO_INTERRUPT | TERM_DO_STOP, &all);
	is_str(did, "page interrupt stop ", "the guard hears of the time to stop before the worker is told");
	ok(!page_leading(&page->slot[0], TERM), "and by then the term is over in the page");
	carry_out(TERM_DO_PAGE_EXTEND | TERM_DO_END, &all);
	is_str(did, "page end refused tell-refused ",
	       "a term that has ended in the page gets no later deadlines, which is told when all else is done");
	carry_out(TERM_DO_PAGE_IDLE, &all);
	swept = true;
	carry_out(~0u & ~(unsigned)(TERM_DO_PAGE_STOP | TERM_DO_PAGE_IDLE), &all);
	is_str(did,
	       "timer_off allow page later poke interrupt lead drain stop clean_up ask saved log_it kill_it sweep timer "
	       "began over answer save end next_term report tell-swept finished ",
	       "all actions are carried out in one order: the page, the worker, the elector, and what follows from them");
	swept = false;
	carry_out(TERM_DO_SWEEP, &all);
	is_str(did, "sweep ", "a sweep that goes on tells later");
	carry_out(TERM_DO_OVER | TERM_DO_REPORT | TERM_DO_FINISHED, &few);
	is_str(did, "over ", "what has no effect is nothing to the caller");
	page = NULL;
	carry_out(TERM_DO_PAGE_EXTEND | TERM_DO_PAGE_STOP | TERM_DO_PAGE_IDLE, &all);
	is_str(did, "page later ", "without a worker there is no page, and nothing is refused");
	page_unmap(made);
	return tap_done();
}
