/* The protocol of a lease (docs/design.md, "Time") for spin: NN candidates with the rules of runtime/lease, one store
 * that compares and swaps, and an environment that does its worst within the budgets below.
 *
 * It has one process, since what happens is a sequence of events: of a tick of time, or of one candidate. An event and all that
 * the candidate decides because of it are one step. Times are whole ticks, and each is kept as what is rest, or as an age, so
 * that a run may go on without end. A version is a bit: "what I saw is what the store has"; so is the name of a write.
 *
 * In a simulation (spin -n) each event and the state that follows are printed: replay.c drives lease.c by them.
 * tests/model/check.py has the configurations, and runs them. MUTANT is the number of a broken rule. */

#ifndef NN
#define NN 3
#endif
#ifndef MAXT
#define MAXT 4 /* terms: a run ends before it acquires more */
#endif
#ifndef FAULTS
#define FAULTS 2 /* messages that are slow or lost, writes that land late, or that fail */
#endif
#ifndef SKIPS
#define SKIPS 0 /* ticks that a candidate's clocks do not count: at most one within a lease */
#endif
#ifndef ODDS
#define ODDS 0 /* ticks that one of a candidate's two clocks counts wrong: ODD_FAST twice, else not at all */
#endif
#ifndef PAUSES
#define PAUSES 0 /* an elector is stopped, and goes on later; guard and script go on */
#endif
#ifndef CRASHES
#define CRASHES 0 /* an elector dies and starts again; the guard kills the script */
#endif
#ifndef DELETES
#define DELETES 0 /* a person deletes the record */
#endif
#ifndef EMPTIES
#define EMPTIES 0 /* a person empties the record */
#endif
#ifndef ENDS
#define ENDS 0 /* a term is ended by somebody's will, perhaps for a named candidate */
#endif
#ifndef CONFIGS
#define CONFIGS 0 /* a candidate's settings change between the short and the long */
#endif
#ifndef LONGS
#define LONGS 0 /* bit n: candidate n begins with the long settings */
#endif
#ifndef CALM
#define CALM 99 /* ticks without fault after which somebody must lead */
#endif
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef TRACE
#define TRACE 0
#endif

/* The settings: short (0) and long (1). */
#define L(s) ((s) -> 9 : 6)
#define R(s) ((s) -> 5 : 3)
#define G(s) ((s) -> 2 : 1)
#define K 1
#define D 1
#define P 2
#define TIMEOUT 2 /* of an operation: the larger of P and R/4 */
#define GRACE 1   /* of a script whose lease is lost: the smaller of G and a second, which is a tick */
#define HOLD 1    /* the hold-back, R/8, in whole ticks */
#define HOLD_RELEASED 5 /* the same after a release, where candidates poll: 2.2 P more */
#define GAP 9     /* the longest L: so many ticks at least between two that a candidate's clocks do not count */
#define OLD 15    /* ages do not grow further */

#define FOLLOW 0
#define LEAD 1
#define END 2
#define LOST 3
#define REL 4

#define ABSENT 0
#define RELEASED 1
#define EMPTIED 2
#define HELD 3

#define ACQ 0
#define RENEW 1
#define RELEASE 2

#define NOOP 0
#define READ 1
#define WRITE 2

#define SENT 0
#define GOOD 1
#define CONFLICT 2
#define GONE 3 /* no answer will come */

#define NOBODY 7
#define VANISHED 6 /* for whom a record may be released: a candidate that is not there any more */
#define EARLIER 4 /* added to a candidate's number: an earlier incarnation of it */

#define LIMBO 4 /* entries; more would be forgotten */

/* Events of a candidate. */
#define E_TICK 0
#define E_CAMPAIGN 1
#define E_READ 2
#define E_READ_FAILED 3
#define E_OK 4
#define E_CONFLICT 5
#define E_UNKNOWN 6
#define E_FAILED 7
#define E_STOPPED 8
#define E_END 9

typedef sent { /* a write that is, or may be, in the store */
	unsigned what : 2;
	bit set;
	unsigned age : 4;
	unsigned term : 4;
	bit in; /* it made the record that the store has now */
	unsigned given : 3;
};

typedef node {
	unsigned ph : 3;
	bit set;
	bit met; /* what it sees is an absence that is over: a create conflicted since */
	/* What the store showed. */
	bit looked, had, own, good, cur, first; /* own, good: the record is by our last known write, by the term's; first: another is named */
	unsigned kind : 2;
	bit mine, reclaim;
	unsigned sage : 4;
	bit miss; /* a record that it knew was gone, so many ticks ago: lease.c's gone. 0 when no wait is left of it */
	unsigned mage : 4;
	bit sset;
	unsigned longest : 4;
	unsigned sterm : 4;
	unsigned top : 4;
	unsigned term : 4;
	/* The last good write of the term. */
	unsigned gage : 4;
	bit gset, gin, oin; /* gin, oin: it made the record that the store has now; oin: the last known write */
	/* Writes of unknown outcome. */
	unsigned n : 3;
	sent w[LIMBO];
	/* The operation. */
	unsigned op : 2;
	unsigned st : 2;
	unsigned by : 2;
	bit due, stale;
	unsigned look : 3;
	unsigned try : 3;
	unsigned poll : 3;
	unsigned setb : 2;
	/* The end of a term. */
	unsigned stop : 3;
	unsigned relby : 3;
	unsigned given : 3;
	bit told, sr; /* sr: the elector has not heard that the script is gone */
	/* The processes. */
	unsigned sc : 2; /* 1: the script runs. 2: it is killed, and may act for K */
	unsigned guard : 4;
	unsigned die : 2;
	bit gone; /* the elector is still to hear that the script is gone */
	bit pz, tk; /* paused; woken, and still to look at the time */
	/* A write that was given up, and is still somewhere. */
	bit fl, fabsent;
	unsigned fidx : 3; /* its place in limbo; NOBODY: none */
	sent f;
	bit fold; /* an earlier incarnation sent it */
};

node c[NN];

/* The store. */
unsigned k : 2;
unsigned h : 3;
bit set;
unsigned term : 4;
unsigned given : 3;

byte faults = FAULTS, skips = SKIPS, odds = ODDS, pauses = PAUSES, crashes = CRASHES, deletes = DELETES, empties = EMPTIES, ends = ENDS, configs = CONFIGS;
byte gap, calm;
unsigned last : 4; /* the token of the last term that began */
bit over, deleted;

/* Of one step: not a part of the state. */
hidden int el, kl, rest, whole, j, m, q, x, lo;
hidden byte idx, wwhat, wage, wterm, wset, win, who, same, newer, asked;
/* Of one event, and 0 between events: not hidden, since the search goes back to them. */
byte i, e, skipper, odd;

#define in_term(i) (c[i].ph == LEAD || c[i].ph == END)
#define mine(i) (c[i].kind == HELD && c[i].mine)

#if TRACE
#define SAY1(s, a) printf(s, a)
#define SAY2(s, a, b) printf(s, a, b)
#else
#define SAY1(s, a) skip
#define SAY2(s, a, b) skip
#endif
#define less(a, b) a = ((b) < (a) -> (b) : (a))
#define down(a) a = ((a) > 0 -> (a) - 1 : 0)
#define clear(s) s.what = 0; s.set = 0; s.age = 0; s.term = 0; s.in = 0; s.given = 0
#define up(a) a = ((a) < OLD -> (a) + 1 : OLD)

/* el, kl: until the script is told to stop, and until it is killed. */
inline deadlines(i)
{
	el = R(c[i].gset) - c[i].gage;
	kl = el + G(c[i].gset);
#if MUTANT == 5
	kl = kl + G(c[i].gset);
#endif
	j = 0;
	do
	:: j < c[i].n ->
		if
#if MUTANT == 10
		:: false
#else
		:: L(c[i].w[j].set) < L(c[i].gset) ->
			less(el, R(c[i].w[j].set) - c[i].w[j].age);
			less(kl, R(c[i].w[j].set) + G(c[i].w[j].set) - c[i].w[j].age)
#endif
		:: else
		fi;
		j++
	:: else -> break
	od;
	if
	:: c[i].ph == END || c[i].ph == LOST -> less(kl, c[i].stop)
	:: else
	fi;
	if
	:: el < 0 -> el = 0
	:: else
	fi;
	if
	:: kl < 0 -> kl = 0
	:: else
	fi
}

inline publish(i)
{
	if
	:: in_term(i) && c[i].sr -> deadlines(i); c[i].guard = kl
	:: else
	fi
}

inline stand_by(i)
{
	c[i].ph = FOLLOW;
	c[i].due = 1;
	c[i].look = 0;
	c[i].try = 0
}

inline enter_release(i)
{
	c[i].ph = REL;
	c[i].relby = R(c[i].set);
	c[i].try = 0
}

inline lose(i, expired)
{
	deadlines(i);
	if
	:: !expired ->
		assert(!mine(i)); /* only what the record shows ends a term before R */
		less(kl, GRACE)
	:: else
	fi;
	c[i].ph = LOST;
	c[i].stop = kl;
	c[i].told = 1;
	less(c[i].guard, kl)
}

inline look_at_deadlines(i)
{
	if
	:: in_term(i) ->
		deadlines(i);
		if
#if MUTANT == 4
		:: false
#else
		:: el == 0 ->
			if
			:: c[i].gage < R(c[i].gset) -> SAY1("reached %d shorter-in-limbo\n", i)
			:: else
			fi;
			lose(i, 1)
#endif
		:: else
		fi
	:: else
	fi;
	if
	:: c[i].ph == REL && c[i].op == NOOP && c[i].relby == 0 -> stand_by(i)
	:: else
	fi
}

inline forget_limbo(i)
{
	j = 0;
	do
	:: j < c[i].n -> clear(c[i].w[j]); j++
	:: else -> break
	od;
	c[i].n = 0;
	c[i].setb = 0;
	c[i].fidx = NOBODY
}

inline begin_term(i)
{
	/* P1 and P5: nobody's script acts, an earlier one of this candidate least of all. */
	j = 0;
	do
	:: j < NN -> assert(c[j].sc == 0); j++
	:: else -> break
	od;
	/* P4. Who creates the record anew may not know the last token; then the store must (docs/design.md, Tokens). */
	assert(c[i].term > last || deleted);
	last = c[i].term;
	c[i].ph = LEAD;
	c[i].sr = 1;
	c[i].sc = 1;
	c[i].told = 0;
	c[i].try = (P > c[i].gage -> P - c[i].gage : 0)
}

/* Entry idx of the limbo is known to have been in the store. */
inline applied(i, idx)
{
	wwhat = c[i].w[idx].what;
	wset = c[i].w[idx].set;
	wage = c[i].w[idx].age;
	wterm = c[i].w[idx].term;
	win = c[i].w[idx].in;
#if MUTANT == 1
	if
	:: e == E_OK -> wage = 0
	:: else
	fi;
#endif
	/* A term whose end has come is not made longer. */
	if
	:: in_term(i) && wwhat == RENEW -> deadlines(i); assert(el > 0)
	:: else
	fi;
	if
	:: e == E_READ && wwhat == ACQ -> SAY1("reached %d unknown-acquired\n", i)
	:: e == E_READ && wwhat == RENEW && in_term(i) -> SAY1("reached %d unknown-renewed\n", i)
	:: e == E_READ && wwhat == RELEASE -> SAY1("reached %d unknown-released\n", i)
	:: else
	fi;
	forget_limbo(i);
	c[i].oin = win;
	c[i].own = 1;
	c[i].good = 0;
	if
	:: wterm > c[i].top -> c[i].top = wterm
	:: else
	fi;
	if
	:: wwhat == RELEASE ->
		if
		:: c[i].ph == REL -> stand_by(i)
		:: else
		fi
	:: wwhat == RENEW && in_term(i) ->
#if MUTANT != 17
		c[i].gset = wset;
#endif
		c[i].gage = wage;
		c[i].gin = win;
		c[i].good = 1;
		c[i].try = (P > wage -> P - wage : 0)
	:: wwhat == ACQ ->
		c[i].gset = wset;
		c[i].gage = wage;
		c[i].gin = win;
		c[i].good = 1;
		if
		:: c[i].ph == FOLLOW ->
			c[i].term = wterm;
			if
#if MUTANT == 12
			:: false
#else
			:: wage >= R(wset) ->
				c[i].due = 1;
				c[i].look = 0
#endif
			:: else -> begin_term(i)
			fi
		:: else
		fi
	:: else
	fi
}

inline set_back(i)
{
	c[i].due = 1;
	c[i].look = 0;
	if
	:: c[i].setb < 2 -> c[i].setb++
	:: else
	fi;
	c[i].try = (c[i].setb > 1 -> 1 : 0)
}

inline try_again_later(i)
{
	c[i].look = ((in_term(i) || c[i].ph == REL) -> 1 : P);
	c[i].try = c[i].look
}

inline new_sight(i)
{
#if MUTANT == 3
	c[i].sage = P;
#elif MUTANT == 6
	c[i].sage = D;
#else
	c[i].sage = 0;
#endif
}

inline noted(i)
{
	c[i].looked = 1;
	if
	:: c[i].sterm > c[i].top -> c[i].top = c[i].sterm
	:: else
	fi;
	if
	:: c[i].kind != ABSENT ->
		c[i].had = 1;
		if
		:: c[i].kind != RELEASED && L(c[i].sset) > c[i].longest -> c[i].longest = L(c[i].sset)
		:: else
		fi
	:: else
	fi
}

inline judge(i)
{
	if
	:: in_term(i) ->
		if
		:: !mine(i) ->
#if MUTANT == 13
			c[i].stale = 1;
#else
			lose(i, 0);
#endif
			assert(!in_term(i)) /* a loss that is known ends the term at once */
		:: mine(i) && !c[i].good && c[i].setb < 2 -> c[i].try = 0
		:: else
		fi
	:: c[i].ph == REL && !mine(i) -> stand_by(i)
	:: else
	fi
}

inline on_read(i)
{
	c[i].poll = P;
#if MUTANT == 31
	same = c[i].looked && (c[i].cur || (c[i].kind == ABSENT && k == ABSENT));
#else
	same = c[i].looked && (c[i].cur || (c[i].kind == ABSENT && k == ABSENT && !c[i].met));
#endif
	newer = !same;
	c[i].due = 0;
	c[i].stale = 0;
	/* Which write in limbo made the record. */
	idx = NOBODY;
	j = 0;
	do
	:: j < c[i].n ->
		if
#if MUTANT == 9
		:: idx == NOBODY && (c[i].w[j].what == RELEASE -> k == RELEASED : k == HELD && h == i) -> idx = j
#else
		:: c[i].w[j].in -> idx = j
#endif
		:: else
		fi;
		j++
	:: else -> break
	od;
	if
	:: c[i].met && k == ABSENT -> SAY1("reached %d met-and-gone\n", i)
	:: else
	fi;
	if
	:: newer -> new_sight(i)
	:: else
	fi;
	if
	:: newer && k == ABSENT && c[i].had -> c[i].miss = 1; c[i].mage = 0
	:: else
	fi;
#if MUTANT != 31
	c[i].met = 0;
#endif
	c[i].kind = k;
	c[i].mine = (k == HELD && h == i);
	c[i].reclaim = (k == HELD && h == i + EARLIER);
	c[i].sset = set;
	c[i].sterm = term;
	c[i].first = (k != ABSENT && given != NOBODY && given != i);
	c[i].own = c[i].oin;
	c[i].good = c[i].gin;
	c[i].cur = 1;
	noted(i);
	if
	:: idx != NOBODY -> applied(i, idx)
	:: idx == NOBODY && newer -> forget_limbo(i)
	:: else
	fi;
	judge(i)
}

inline forget_earlier(i)
{
	if
	:: idx > 0 ->
		c[i].w[0].what = c[i].w[idx].what;
		c[i].w[0].set = c[i].w[idx].set;
		c[i].w[0].age = c[i].w[idx].age;
		c[i].w[0].term = c[i].w[idx].term;
		c[i].w[0].in = c[i].w[idx].in;
		c[i].w[0].given = c[i].w[idx].given;
		do
		:: idx > 0 -> clear(c[i].w[idx]); idx--
		:: else -> break
		od;
		c[i].n = 1;
		c[i].fidx = NOBODY
	:: else
	fi
}

inline on_written(i)
{
	idx = c[i].n - 1;
	if
	:: e == E_OK ->
		new_sight(i);
		c[i].met = 0;
		c[i].kind = (c[i].w[idx].what == RELEASE -> RELEASED : HELD);
		c[i].mine = (c[i].kind == HELD);
		c[i].reclaim = 0;
		c[i].sset = c[i].w[idx].set;
		c[i].sterm = c[i].w[idx].term;
		c[i].first = (c[i].w[idx].given != NOBODY && c[i].w[idx].given != i);
		c[i].cur = c[i].w[idx].in;
		noted(i);
		c[i].stale = 0;
		c[i].poll = P;
		applied(i, idx)
	:: e == E_CONFLICT ->
		c[i].stale = 1;
		SAY1("reached %d conflict\n", i);
		if
		:: c[i].kind == ABSENT ->
			c[i].met = 1;
#if MUTANT != 31
			c[i].had = 1;
#endif
#if MUTANT != 31 && MUTANT != 32
			/* An earlier create may land when that record is gone: it is not known to be ours any more. */
			forget_earlier(i)
#endif
		:: else
		fi;
		set_back(i);
#if MUTANT == 11
		if
		:: c[i].ph == LEAD -> lose(i, 0)
		:: else
		fi
#endif
	:: e == E_UNKNOWN ->
#if MUTANT == 7
		applied(i, idx)
#else
#if MUTANT == 8
		clear(c[i].w[idx]);
		c[i].n--;
		c[i].fidx = NOBODY;
#endif
		set_back(i)
#endif
	:: e == E_FAILED ->
		clear(c[i].w[idx]);
		c[i].n--;
		try_again_later(i)
	fi
}

inline on_stopped(i)
{
	c[i].sr = 0;
	c[i].gone = 0;
	c[i].told = 0;
	if
	:: in_term(i) -> enter_release(i)
	:: c[i].ph == LOST -> stand_by(i)
	:: else
	fi
}

inline on_end(i)
{
	c[i].ph = END;
	c[i].stop = G(c[i].set);
	c[i].told = 1;
#if MUTANT == 16
	enter_release(i)
#endif
}

/* rest: until this candidate may try to acquire what it sees. */
inline try_left(i)
{
	whole = 0;
	if
	:: c[i].kind == EMPTIED ->
#if MUTANT != 15
		whole = L(c[i].sset)
#endif
#if MUTANT == 29
	:: c[i].kind == HELD && !c[i].mine ->
#else
	:: c[i].kind == HELD && !(c[i].mine && c[i].own) ->
#endif
#if MUTANT == 30
		whole = (c[i].reclaim -> 0 : L(c[i].sset))
#elif MUTANT == 2
		whole = L(c[i].set)
#else
		whole = L(c[i].sset)
#endif
	:: else
	fi;
	if
	:: c[i].first && (c[i].kind == RELEASED || (c[i].kind == HELD && !c[i].mine)) ->
#if MUTANT == 23
		whole = 99
#else
		whole = whole + (c[i].kind == RELEASED -> HOLD_RELEASED : HOLD)
#endif
	:: else
	fi;
	rest = (whole > c[i].sage -> whole - c[i].sage : 0);
	whole = (c[i].longest > L(c[i].set) -> c[i].longest : L(c[i].set));
	if
#if MUTANT == 14
	:: false
#elif MUTANT == 33
	:: c[i].miss && c[i].kind == ABSENT && whole > c[i].mage + rest -> rest = whole - c[i].mage
#else
	:: c[i].miss && whole > c[i].mage + rest -> rest = whole - c[i].mage
#endif
	:: else
	fi
}

inline start(i, what)
{
	c[i].op = what;
	c[i].st = SENT;
	c[i].by = TIMEOUT;
	if
	:: in_term(i) -> deadlines(i); less(c[i].by, el)
	:: else
	fi
}

#if MUTANT == 24
#define next_term(i) (c[i].sterm + 1)
#else
#define next_term(i) (c[i].top + 1)
#endif

inline write(i, why)
{
	assert(c[i].n < LIMBO); /* else the model needs to forget the oldest, as lease.c does */
	start(i, WRITE);
	q = c[i].n;
	c[i].w[q].what = why;
	c[i].w[q].set = c[i].set;
	c[i].w[q].age = 0;
	c[i].w[q].term = c[i].term;
	if
	:: why == ACQ -> c[i].w[q].term = next_term(i)
	:: else
	fi;
	c[i].w[q].in = 0;
	c[i].w[q].given = (why == RELEASE -> c[i].given : NOBODY);
	assert(why != ACQ || c[i].w[q].term > c[i].top); /* P4: above all that the candidate has seen */
	c[i].n++;
#if MUTANT == 20
	asked = 1
#endif
}

inline plan(i)
{
	if
	:: c[i].op != NOOP
	:: c[i].op == NOOP && (in_term(i) || c[i].ph == REL) ->
		if
		:: c[i].due && c[i].look == 0 -> start(i, READ)
		:: !(c[i].due && c[i].look == 0) && !c[i].stale && c[i].try == 0 -> write(i, (c[i].ph == REL -> RELEASE : RENEW))
		:: else
		fi
	:: else ->
		if
		:: c[i].due ->
			if
			:: c[i].look == 0 -> start(i, READ)
			:: else
			fi
		:: else ->
			try_left(i);
			if
#if MUTANT == 28
			:: c[i].ph == FOLLOW && rest == 0 && c[i].try == 0 && c[i].poll == 0 ->
#else
			:: c[i].ph == FOLLOW && rest == 0 && c[i].try == 0 ->
#endif
				if
				:: next_term(i) > MAXT -> over = 1; SAY1("over %d\n", i)
				:: else -> write(i, ACQ)
				fi
			:: else ->
				if
				:: c[i].poll == 0 -> start(i, READ)
				:: else
				fi
			fi
		fi
	fi
}

inline step(i)
{
	asked = 0;
#if MUTANT == 19
	if
	:: e == E_TICK -> look_at_deadlines(i)
	:: else
	fi;
#else
	look_at_deadlines(i);
#endif
	if
	:: e >= E_READ && e <= E_FAILED -> c[i].op = NOOP; c[i].by = 0; c[i].st = 0
	:: else
	fi;
	if
	:: e == E_TICK -> c[i].tk = 0
	:: e == E_CAMPAIGN -> c[i].due = 1; c[i].look = 0
	:: e == E_READ -> on_read(i)
	:: e == E_READ_FAILED -> c[i].poll = P; try_again_later(i); c[i].due = 1
	:: e >= E_OK && e <= E_FAILED -> on_written(i)
	:: e == E_STOPPED -> on_stopped(i)
	:: e == E_END -> on_end(i)
	fi;
#if MUTANT == 20
	publish(i);
	plan(i);
	if
	:: asked == 0 -> publish(i)
	:: else
	fi;
#else
	plan(i);
	publish(i);
#endif
	tidy(i);
	print_node(i)
}

/* What has no meaning any more gets one value, so that there are fewer states. */
inline tidy(i)
{
	if
	:: !in_term(i) && !c[i].sr -> c[i].gage = 0; c[i].gset = 0; c[i].guard = 0; c[i].stop = 0
	:: else
	fi;
	if
	:: c[i].ph != REL -> c[i].relby = 0
	:: else
	fi;
	if
	:: c[i].ph != END && c[i].ph != REL -> c[i].given = NOBODY
	:: else
	fi;
	if
	:: !c[i].due -> c[i].look = 0
	:: else
	fi
}

inline print_node(i)
{
#if TRACE
	deadlines(i);
	printf("= %d %d %d %d %d %d %d %d %d %d\n", i, c[i].ph, c[i].op, (c[i].op == WRITE -> c[i].w[c[i].n - 1].what : 0), c[i].n,
	       (in_term(i) -> el : 0), (c[i].sr -> c[i].guard : 0), c[i].term, c[i].top, c[i].sc)
#else
	skip
#endif
}


/* The store has a new version: nobody has seen it, and nothing that was conditional on the old one can be applied. */
inline changed()
{
	m = 0;
	do
	:: m < NN ->
		c[m].cur = 0;
		c[m].oin = 0;
		c[m].gin = 0;
		j = 0;
		do
		:: j < LIMBO -> c[m].w[j].in = 0; j++
		:: else -> break
		od;
		if
		:: c[m].fl && !c[m].fabsent -> drop(m)
		:: else
		fi;
		m++
	:: else -> break
	od
}

inline drop(m)
{
	c[m].fl = 0;
	c[m].fabsent = 0;
	c[m].fold = 0;
	c[m].fidx = NOBODY;
	clear(c[m].f)
}

/* A write of a candidate reaches the store, in the name of who. */
inline put(cand, wr)
{
	/* P7: a renewal or a release replaces a record of the same holder, and nothing else. */
	if
	:: wr.what != ACQ -> assert(k == HELD && h == who)
	:: else
	fi;
	/* Not covered: a person deletes the record while a candidate begins that has never seen one. */
	if
	:: wr.what == ACQ && k == ABSENT && deleted && !c[cand].had && !c[cand].met -> over = 1; SAY1("over %d\n", cand)
	:: else
	fi;
	if
	:: wr.what == ACQ && k == RELEASED && given == cand -> SAY1("reached %d released-for-it\n", cand)
	:: wr.what == ACQ && k == RELEASED && given != cand && given != NOBODY -> SAY1("reached %d held-back\n", cand)
	:: wr.what == ACQ && k == RELEASED && given == NOBODY -> SAY1("reached %d released\n", cand)
	:: wr.what == ACQ && k == HELD && h < EARLIER && h != cand -> SAY1("reached %d expired\n", cand)
	:: wr.what == ACQ && k == HELD && h == cand + EARLIER -> SAY1("reached %d earlier-incarnation\n", cand)
	:: wr.what == ACQ && k == ABSENT && deleted && c[cand].longest -> SAY1("reached %d deletion-waited-out\n", cand)
	:: wr.what == ACQ && k == EMPTIED -> SAY1("reached %d emptied\n", cand)
	:: else
	fi;
	changed();
	k = (wr.what == RELEASE -> RELEASED : HELD);
	h = (wr.what == RELEASE -> NOBODY : who);
	set = wr.set;
	term = wr.term;
	given = wr.given
}

inline arrive(i)
{
	q = c[i].n - 1;
	if
#if MUTANT == 27
	:: true ->
#else
	:: (c[i].kind == ABSENT -> k == ABSENT : c[i].cur) ->
#endif
		assert(c[i].kind == ABSENT -> k == ABSENT : c[i].cur); /* nothing is replaced that its writer has not read */
		who = i;
		put(i, c[i].w[q]);
		c[i].w[q].in = 1;
		c[i].st = GOOD
	:: else -> c[i].st = CONFLICT
	fi
}

inline land(i)
{
	if
	:: c[i].fabsent && k != ABSENT -> skip
	:: else ->
		x = c[i].fidx;
		c[i].fabsent = 1; /* so that it is not forgotten in the middle */
		who = (c[i].fold -> i + EARLIER : i);
		put(i, c[i].f);
		if
		:: x != NOBODY && !c[i].fold -> c[i].w[x].in = 1
		:: else
		fi
	fi;
	drop(i)
}

inline float(i)
{
	q = c[i].n - 1;
	c[i].fl = 1;
	c[i].fabsent = (c[i].kind == ABSENT);
	c[i].fidx = q;
	c[i].f.what = c[i].w[q].what;
	c[i].f.set = c[i].w[q].set;
	c[i].f.term = c[i].w[q].term;
	c[i].f.given = c[i].w[q].given;
	c[i].fold = 0;
	c[i].st = GONE
}

inline crash(i)
{
	if
	:: c[i].op == WRITE && c[i].st == SENT && !c[i].fl && (c[i].kind == ABSENT || c[i].cur) -> float(i)
	:: else
	fi;
	if
	:: h == i && k == HELD -> h = i + EARLIER
	:: else
	fi;
	if
	:: c[i].fl -> c[i].fold = 1; c[i].fidx = NOBODY
	:: else
	fi;
	if
	:: c[i].sc == 1 -> c[i].sc = 2; c[i].die = K
	:: else
	fi;
	forget_limbo(i);
	c[i].ph = FOLLOW; c[i].looked = 0; c[i].had = 0; c[i].met = 0; c[i].own = 0; c[i].good = 0; c[i].cur = 0; c[i].first = 0;
	c[i].kind = 0; c[i].mine = 0; c[i].reclaim = 0; c[i].sage = 0; c[i].miss = 0; c[i].mage = 0; c[i].sset = 0; c[i].longest = 0; c[i].sterm = 0;
	c[i].top = 0; c[i].term = 0; c[i].gage = 0; c[i].gset = 0; c[i].gin = 0; c[i].oin = 0; c[i].op = 0; c[i].st = 0;
	c[i].by = 0; c[i].due = 0; c[i].stale = 0; c[i].look = 0; c[i].try = 0; c[i].poll = 0; c[i].stop = 0; c[i].relby = 0;
	c[i].given = NOBODY; c[i].told = 0; c[i].sr = 0; c[i].guard = 0; c[i].gone = 0; c[i].pz = 0; c[i].tk = 0
}

/* A random run would have all its faults at the beginning: there, there are some in every fifth tick only, unless RASH. */
#if TRACE && !defined(RASH)
byte mood;
#define may (mood == 1)
#else
#define may true
#endif
#define has(budget) (budget > 0 && may)
#define waits(i) (c[i].op != NOOP && c[i].st != GONE && !(c[i].pz && c[i].st != SENT))
#define urgent(i) (!c[i].pz && (c[i].tk || c[i].gone || (c[i].op != NOOP && c[i].by == 0)))

inline grow_older(i)
{
	/* By the clock that a standby counts, and by the one that a holder counts. */
#ifdef ODD_FAST
	x = (i == odd -> 2 : 1);
#else
	x = 1;
#endif
	if
#if MUTANT == 25
	:: i == odd && x == 1 -> x = 0
#endif
	:: else
	fi;
	if
#if defined(ODD_FAST) && MUTANT == 26
	:: i == odd -> up(c[i].sage); up(c[i].sage); up(c[i].mage); up(c[i].mage)
#elif !defined(ODD_FAST) && MUTANT != 26
	:: i == odd -> skip
#endif
	:: else -> up(c[i].sage); up(c[i].mage)
	fi;
	if
	:: !c[i].miss || c[i].mage >= L(1) -> c[i].miss = 0; c[i].mage = 0
	:: else
	fi;
	do
	:: x > 0 ->
		x--;
		if
		:: in_term(i) || c[i].sr -> up(c[i].gage)
		:: else
		fi;
		j = 0;
		do
		:: j < c[i].n -> up(c[i].w[j].age); j++
		:: else -> break
		od;
		down(c[i].look); down(c[i].try); down(c[i].poll); down(c[i].stop); down(c[i].relby); down(c[i].guard); down(c[i].by)
	:: else -> break
	od;
	lo = (c[i].longest > L(1) -> c[i].longest : L(1)) + HOLD;
	if
	:: c[i].sage > lo -> c[i].sage = lo
	:: else
	fi
}

/* The guard kills at its deadline, whatever the elector does, and what it killed is dead after K. */
inline reap(i)
{
	if
	:: c[i].sc == 2 && c[i].die > 0 ->
		c[i].die--;
	:: else
	fi;
	if
	:: c[i].sc == 2 && c[i].die == 0 -> c[i].sc = 0; c[i].gone = c[i].sr; SAY1("dead %d\n", i)
	:: c[i].sc == 1 && c[i].guard == 0 -> c[i].sc = 2; c[i].die = K; SAY1("kill %d\n", i)
	:: else
	fi
}

inline tick()
{
#ifdef ODD_FAST
	SAY2("tick %d %d fast\n", skipper, odd);
#else
	SAY2("tick %d %d\n", skipper, odd);
#endif
	m = 0;
	do
	:: m < NN ->
		if
		:: waits(m) -> faults--; calm = 0
		:: else
		fi;
		if
		:: m == skipper
		:: else -> grow_older(m); reap(m)
		fi;
		m++
	:: else -> break
	od;
	i = 0;
	e = E_TICK;
	do
	:: i < NN ->
		if
		:: !c[i].pz && i != skipper -> SAY1("time %d\n", i); step(i)
		:: else
		fi;
		i++
	:: else -> break
	od;
	if
	:: skipper != NOBODY -> gap = GAP
	:: else -> down(gap)
	fi;
	if
	:: skips == 0 -> gap = 0
	:: else
	fi;
	count_calm();
	check();
	i = 0;
	e = 0;
	skipper = 0;
	odd = 0
}

/* Ticks since the last fault in which nobody leads. */
inline count_calm()
{
	m = 0;
	x = 0;
	do
	:: m < NN ->
		if
		:: c[m].pz || c[m].fl || in_term(m) -> x = 1
		:: else
		fi;
		m++
	:: else -> break
	od;
	calm = (x -> 0 : calm + 1);
#if CALM < 99
	assert(calm <= CALM)
#endif
}

/* What must be so after each tick. */
inline check()
{
	m = 0;
	do
	:: m < NN ->
		if
		:: !c[m].pz && m != skipper ->
			/* P2: nobody leads beyond R. */
			if
			:: in_term(m) -> deadlines(m); assert(el > 0)
			:: else
			fi;
			/* A standby tries when its wait ends. */
			if
			:: c[m].ph == FOLLOW && c[m].op == NOOP && !c[m].due && c[m].try == 0 && !over -> try_left(m); assert(rest > 0)
			:: else
			fi
		:: else
		fi;
		m++
	:: else -> break
	od
}

#define slow (waits(0) + waits(1) + (NN == 3 -> waits(NN - 1) : 0))
#define can_tick (!urgent(0) && !urgent(1) && (NN < 3 || !urgent(NN - 1)) && \
	slow <= faults && (slow == 0 || may))

#define en_op(i) ((waits(i) && has(faults)) || (c[i].op == WRITE && c[i].st == SENT) || \
	(c[i].op != NOOP && !c[i].pz && (c[i].st != GONE || c[i].by == 0)))
#define en_end(i) (c[i].ph == LEAD && c[i].sr && c[i].sc == 1 && has(ends) && !c[i].pz && !c[i].tk)
#define en_dies(i) ((c[i].sc == 1 && c[i].told) || c[i].sc == 2)
#define en(i) (en_op(i) || en_end(i) || en_dies(i) || (c[i].gone && !c[i].pz) || (c[i].tk && !c[i].pz) || c[i].fl || c[i].pz || \
	(has(pauses) && !c[i].pz) || has(crashes) || has(configs))

/* LATER: nothing is deleted before all candidates have seen a record (for random runs, which would often end there). */
#ifdef LATER
#define knows(i) c[i].had
#else
#define knows(i) true
#endif

active proctype world()
{
	d_step {
		h = NOBODY;
		given = NOBODY;
		i = 0;
		do
		:: i < NN ->
			c[i].set = (LONGS >> i) & 1;
			c[i].given = NOBODY;
			c[i].fidx = NOBODY;
			SAY2("node %d %d\n", i, c[i].set);
			i++
		:: else -> break
		od;
		i = 0;
		e = E_CAMPAIGN;
		do
		:: i < NN -> SAY1("campaign %d\n", i); step(i); i++
		:: else -> break
		od;
		i = 0;
		e = 0
	}
end:
	do
	:: atomic {
		!over && can_tick ->
		skipper = NOBODY;
		odd = NOBODY;
		if
		:: true
		:: skips > 0 && gap == 0 -> skipper = 0; skips--
		:: skips > 0 && gap == 0 -> skipper = 1; skips--
		:: odds > 0 -> odd = 0; odds--
		:: odds > 0 -> odd = 1; odds--
		fi;
#if TRACE && !defined(RASH)
		if
		:: mood = 0
		:: mood = 1
		:: mood = 2
		:: mood = 3
		:: mood = 4
		fi;
#endif
		d_step { tick() }
	}
	:: atomic {
		!over && has(deletes) && k != ABSENT && knows(0) && knows(1) && knows(NN - 1) ->
		d_step {
			deletes--;
			deleted = 1;
			SAY1("delete %d\n", 0);
			changed();
			k = ABSENT; h = NOBODY; set = 0; term = 0; given = NOBODY;
			calm = 0
		}
	}
	:: atomic {
		!over && has(empties) && k == HELD ->
		d_step {
			empties--;
			SAY1("empty %d\n", 0);
			changed();
			k = EMPTIED; h = NOBODY;
			calm = 0
		}
	}
	:: atomic {
		!over && (en(0) || en(1) || (NN > 2 && en(NN - 1))) ->
		if
		:: en(0) -> i = 0
		:: en(1) -> i = 1
#if NN > 2
		:: en(2) -> i = 2
#endif
		fi;
		e = NOBODY + 9; /* no event of the lease */
		if
		/* The network and the store. */
		:: c[i].op == READ && c[i].st == SENT && !c[i].pz -> e = E_READ; SAY1("read %d\n", i)
		:: c[i].op == WRITE && c[i].st == SENT -> d_step { SAY1("arrive %d\n", i); arrive(i) }
		:: c[i].op == WRITE && c[i].st == GOOD && !c[i].pz -> e = E_OK; SAY1("reply %d\n", i)
		:: c[i].op == WRITE && c[i].st == CONFLICT && !c[i].pz -> e = E_CONFLICT; SAY1("reply %d\n", i)
		:: waits(i) && has(faults) -> faults--; calm = 0; c[i].st = GONE; SAY1("lose %d\n", i)
		:: c[i].op == WRITE && c[i].st == SENT && has(faults) && !c[i].fl && (c[i].kind == ABSENT || c[i].cur) ->
			d_step { faults--; calm = 0; SAY1("float %d\n", i); float(i) }
		:: c[i].op == WRITE && c[i].st == SENT && has(faults) && !c[i].pz -> faults--; calm = 0; e = E_FAILED; SAY1("fail %d\n", i)
		:: c[i].op == READ && c[i].by == 0 && !c[i].pz -> e = E_READ_FAILED; SAY1("timeout %d\n", i)
		:: c[i].op == WRITE && c[i].by == 0 && !c[i].pz -> e = E_UNKNOWN; SAY1("timeout %d\n", i)
		:: c[i].fl -> d_step { SAY1("land %d\n", i); land(i); calm = 0 }
		/* The processes. */
		:: en_dies(i) -> c[i].sc = 0; c[i].gone = c[i].sr; SAY1("ends %d\n", i)
		:: c[i].gone && !c[i].pz -> e = E_STOPPED; SAY1("stopped %d\n", i)
		:: c[i].tk && !c[i].pz -> e = E_TICK; SAY1("time %d\n", i)
		:: c[i].pz -> c[i].pz = 0; c[i].tk = 1; calm = 0; SAY1("wake %d\n", i)
		:: !c[i].pz && has(pauses) -> pauses--; c[i].pz = 1; calm = 0; SAY1("pause %d\n", i)
		:: has(crashes) -> d_step { crashes--; calm = 0; SAY1("crash %d\n", i); crash(i) }; e = E_CAMPAIGN
		/* People. */
		:: en_end(i) -> ends--; e = E_END; c[i].given = (i + 1) % NN; SAY2("end %d %d\n", i, c[i].given)
		:: en_end(i) -> ends--; e = E_END; c[i].given = VANISHED; SAY2("end %d %d\n", i, VANISHED)
		:: en_end(i) -> ends--; e = E_END; SAY2("end %d %d\n", i, NOBODY)
		:: has(configs) -> configs--; c[i].set = 1 - c[i].set; SAY2("config %d %d\n", i, c[i].set)
		fi;
		d_step {
			if
			:: e <= E_END -> step(i)
			:: else
			fi;
			i = 0;
			e = 0
		}
	}
	:: over -> break
	od
}
