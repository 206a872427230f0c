#include "term/term_effects.h"

#define PAGE_ACTIONS (TERM_DO_PAGE_BEGIN | TERM_DO_PAGE_EXTEND | TERM_DO_PAGE_STOP | TERM_DO_PAGE_IDLE)

/* false: the page has not taken later deadlines. */
static bool write_page(const struct term_hooks *h, uint32_t slot, const struct term_actions *a, struct page *page)
{
	struct page_slot *s = &page->slot[slot];
	bool taken = true;

	if (a->set & TERM_DO_PAGE_BEGIN)
		page_begin(page, slot, h->term, h->token, a->end, a->kill);
	if (a->set & TERM_DO_PAGE_EXTEND)
		taken = page_extend(s, h->term, a->end, a->kill);
	if (a->set & TERM_DO_PAGE_STOP)
		page_stop(s, a->held, a->kill);
	if (a->set & TERM_DO_PAGE_IDLE)
		page_idle(s);
	return taken;
}

static bool change_page(const struct term_hooks *h, uint32_t slot, const struct term_actions *a,
                        const struct term_effects *f, void *arg)
{
	struct page *page = a->set & PAGE_ACTIONS ? f->page(arg) : NULL;
	bool taken = !page || write_page(h, slot, a, page);

	if (a->set & TERM_DO_PAGE_EXTEND && taken)
		f->page_changed(arg, TERM_PAGE_LATER);
	if (a->set & TERM_DO_POKE)
		f->page_changed(arg, TERM_PAGE_POKE);
	if (a->set & TERM_DO_INTERRUPT)
		f->page_changed(arg, TERM_PAGE_INTERRUPT);
	return taken;
}

static void perform(struct term_actions *a, enum term_do what, term_effect *effect, void *arg)
{
	if (a->set & what && effect)
		effect(arg, a);
}

void term_carry_out(const struct term_hooks *h, uint32_t slot, struct term_actions *a, const struct term_effects *f,
                    void *arg)
{
	perform(a, TERM_DO_TIMER_OFF, f->timer_off, arg);
	perform(a, TERM_DO_ALLOW, f->allow, arg);
	bool taken = change_page(h, slot, a, f, arg);
	perform(a, TERM_DO_LEAD, f->lead, arg);
	perform(a, TERM_DO_DRAIN, f->drain, arg);
	perform(a, TERM_DO_STOP, f->stop, arg);
	perform(a, TERM_DO_CLEAN_UP, f->clean_up, arg);
	perform(a, TERM_DO_ASK, f->ask, arg);
	perform(a, TERM_DO_SAVED, f->saved, arg);
	perform(a, TERM_DO_LOG, f->log, arg);
	perform(a, TERM_DO_KILL, f->kill, arg);
	perform(a, TERM_DO_SWEEP, f->sweep, arg);
	perform(a, TERM_DO_TIMER, f->timer, arg);
	perform(a, TERM_DO_BEGAN, f->began, arg);
	perform(a, TERM_DO_OVER, f->over, arg);
	perform(a, TERM_DO_ANSWER, f->answer, arg);
	perform(a, TERM_DO_SAVE, f->save, arg);
	perform(a, TERM_DO_END, f->end, arg);
	perform(a, TERM_DO_NEXT_TERM, f->next_term, arg);
	perform(a, TERM_DO_REPORT, f->report, arg);
	if (!taken && f->refused)
		f->refused(arg, a);
	if (!taken)
		f->tell(arg, (struct term_event){ .kind = TERM_EV_REFUSED });
	if (a->swept)
		f->tell(arg, (struct term_event){ .kind = TERM_EV_SWEPT, .term = h->term, .clean = true });
	perform(a, TERM_DO_FINISHED, f->finished, arg);
}
