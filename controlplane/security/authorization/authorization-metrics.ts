/** Registers the metrics of authorization, under kube-apiserver's names. */
import type { Counter, Histogram, MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Authorizer, Decision } from './authorization.ts';

const BUCKETS = Array.from({ length: 15 }, (_, i) => 0.001 * 2 ** i);
const RESULTS: Readonly<Record<Decision['decision'], string>> = {
  allow: 'allowed',
  deny: 'denied',
  'no-opinion': 'no-opinion',
};

/** Wraps authorizers, so that the authorizers themselves know no metrics. */
export interface AuthorizationMetrics {
  /** Counts the decisions of one authorizer. No opinion does not count as a decision. */
  counted(authorizer: Authorizer, of: { readonly type: string; readonly name: string }): Authorizer;
  /** Counts and times the decisions of the whole chain. No opinion with an evaluation error counts as the result `error`. */
  measured(authorizer: Authorizer, monotonic: () => number): Authorizer;
}

/** Registers the counters and durations (seconds) of decisions. */
export function authorizationMetrics(registry: MetricsRegistry): AuthorizationMetrics {
  const decisions = registry.counter({
    name: 'apiserver_authorization_decisions_total',
    help: 'Requests that an authorizer has allowed or denied.',
    labels: ['type', 'name', 'decision'],
  });
  return {
    counted(authorizer, { type, name }) {
      const note = (answer: Decision): Decision => {
        if (answer.decision !== 'no-opinion') decisions.with(type, name, RESULTS[answer.decision]).inc();
        return answer;
      };
      return watched(authorizer, () => note);
    },
    measured: (authorizer, monotonic) => measured(registry, authorizer, monotonic),
  };
}

function measured(registry: MetricsRegistry, authorizer: Authorizer, monotonic: () => number): Authorizer {
  const attempts = registry.counter({
    name: 'authorization_attempts_total',
    help: 'Requests by the result of their authorization.',
    labels: ['result'],
  });
  const durations = registry.histogram({
    name: 'authorization_duration_seconds',
    help: 'Duration of the authorization of requests.',
    labels: ['result'],
    buckets: BUCKETS,
  });
  const series = new Map<string, { readonly count: Counter; readonly time: Histogram }>();
  return watched(authorizer, () => {
    const startMs = monotonic();
    return (answer) => {
      const isFault = answer.evaluationError !== undefined && answer.decision === 'no-opinion';
      const result = isFault ? 'error' : RESULTS[answer.decision];
      let found = series.get(result);
      if (found === undefined)
        series.set(result, (found = { count: attempts.with(result), time: durations.with(result) }));
      found.count.inc();
      found.time.observe((monotonic() - startMs) / 1000);
      return answer;
    };
  });
}

/**
 * Calls `begin` before the authorization, and passes the decision to the function that it returns. Synchronous if the
 * authorizer is.
 */
function watched(inner: Authorizer, begin: () => (answer: Decision) => Decision): Authorizer {
  return {
    authorize(attributes) {
      const note = begin();
      const answer = inner.authorize(attributes);
      return answer instanceof Promise ? answer.then(note) : note(answer);
    },
  };
}
