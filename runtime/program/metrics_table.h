/* The metrics of an election: a row for each sample, which is all that there is to write for a new one. Not code:
 * admin_metrics.c includes it and says what becomes of a row. Used by admin_metrics.c alone.
 *
 * ROW(name, type, labels, unit, value, help): samples of one name stand together, and the first has the type and the
 * help. labels: further ones, or "". unit: COUNT, SECONDS, or what admin_metrics.c makes by itself. value: of e, its
 * status s and its Service sv; NAN: there is no series. The first two have the names that client-go gives them, so that
 * dashboards and alerts made for it work here, too. */
ROW("leader_election_master_status", "gauge", "", COUNT, s->leading, "1 while this process leads the election.")
ROW("leader_election_slowpath_total", "counter", "", COUNT, s->slow_paths,
    "Renewals that met another version than expected.")
ROW("lunarch_could_lead", "gauge", "", COUNT, s->standing.observer ? NAN : !s->lacks,
    "1 while this process leads, or could if nobody did; `lunarch ctl why` says why not. No series of an observer.")
ROW("lunarch_token", "gauge", "", COUNT, s->leading ? s->token : 0,
    "Fencing token of the running term; 0 while not leading.")
ROW("lunarch_remaining_seconds", "gauge", "", SECONDS, s->leading ? s->remaining : 0,
    "Until the term would end without another renewal.")
ROW("lunarch_transitions_total", "counter", "", COUNT, s->transitions,
    "Terms that this process began; the sum over all candidates counts every change.")
ROW("lunarch_renewals_total", "counter", ",result=\"ok\"", COUNT, s->renewals_ok, "Renewals by result.")
ROW("lunarch_renewals_total", NULL, ",result=\"failed\"", COUNT, s->renewals_failed, NULL)
ROW("lunarch_renew_seconds", "histogram", "", RENEWALS, 0, "From sending a renewal to its answer.")
ROW("lunarch_term_seconds", "gauge", "", SECONDS, s->since_began < 0 ? 0 : s->since_began,
    "Since the running term began; 0 while there is none.")
ROW("lunarch_worker_silent_seconds", "gauge", "", SECONDS, e->silent ? e->silent_for : 0,
    "Since the worker was told to lead, if it has not answered: no hook of the term has run. Else 0.")
ROW("lunarch_store_last_contact_seconds", "gauge", "", SECONDS, s->store_silence,
    "Since the store last answered an operation; before it ever did, since the start.")
ROW("lunarch_store_failures_total", "counter", ",operation=\"read\"", COUNT, s->store.reads_failed,
    "Reads and writes that failed, and watches that ended by themselves.")
ROW("lunarch_store_failures_total", NULL, ",operation=\"write\"", COUNT, s->store.writes_failed, NULL)
ROW("lunarch_store_failures_total", NULL, ",operation=\"watch\"", COUNT, s->store.watches_failed, NULL)
ROW("lunarch_next_known", "gauge", "", COUNT, s->next.known,
    "1 while the leader names a standby that is to lead after it; 0: a hand-over would have to be competed for.")
ROW("lunarch_is_next", "gauge", "", COUNT, s->next.self, "1 while this process is the standby that is to lead next.")
ROW("lunarch_fencing", "gauge", "", COUNT, s->fencing,
    "1 while this process holds the lease and fences earlier holders (--fence), before its term begins.")
ROW("lunarch_barred", "gauge", "", COUNT, *s->barred != 0,
    "1 while earlier holders may still act, and this candidate must not fence them: it does not campaign.")
ROW("lunarch_handovers_total", "counter", ",why=\"request\"", COUNT, s->next.handovers[NEXT_REQUEST],
    "Terms that this process ended in order to hand over: by an operator's request (lunarch ctl handover), to a "
    "larger priority (--preempt), or by rotation (--max-term).")
ROW("lunarch_handovers_total", NULL, ",why=\"priority\"", COUNT, s->next.handovers[NEXT_PRIORITY], NULL)
ROW("lunarch_handovers_total", NULL, ",why=\"rotation\"", COUNT, s->next.handovers[NEXT_ROTATION], NULL)
ROW("lunarch_pokes_total", "counter", ",what=\"sent\"", COUNT, s->pokes_sent,
    "Datagrams by which a leader told its next to look at the lock (--poke), sent and heard by this process.")
ROW("lunarch_pokes_total", NULL, ",what=\"heard\"", COUNT, s->pokes_heard, NULL)
ROW("lunarch_service_published", "gauge", "", COUNT, e->service ? sv.published : NAN,
    "1 while this process keeps the address of its Service (--service); no series without one.")
ROW("lunarch_service_failures_total", "counter", "", COUNT, e->service ? sv.failures : (long double)NAN,
    "Attempts to keep the Service's address that failed or were refused.")
ROW("lunarch_same_identity_writes_total", "counter", "", COUNT, s->namesake_writes,
    "Writes of another candidate that has this one's identity, as far as they were seen: give each its own.")
ROW("lunarch_durations_info", "gauge", "", DURATIONS, 0, "The durations in force, as labels; 1.")
ROW("lunarch_hook_errors_total", "counter", "", COUNT, e->hook_errors,
    "Hooks that raised an error or had to be killed.")
