/** Registers the metrics of authorization, under kube-apiserver's names. */
import { onFirstUse } from '../../../api/component/by-labels.ts';
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
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
      const counterOf = onFirstUse((decision: Decision['decision']) => decisions.with(type, name, RESULTS[decision]));
      const note = ({ decision }: Decision): void => {
        if (decision !== 'no-opinion') counterOf(decision).inc();
      };
      return watched(authorizer, () => 0, note);
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
  const seriesOf = onFirstUse((result) => ({ count: attempts.with(result), time: durations.with(result) }));
  return watched(authorizer, monotonic, (answer, startMs) => {
    const isFault = answer.evaluationError !== undefined && answer.decision === 'no-opinion';
    const result = isFault ? 'error' : RESULTS[answer.decision];
    const { count, time } = seriesOf(result);
    count.inc();
    time.observe((monotonic() - startMs) / 1000);
  });
}

/** Calls `note` with each decision, and the time at which its authorization began. Synchronous if the authorizer is. */
function watched(
  inner: Authorizer,
  monotonic: () => number,
  note: (answer: Decision, startMs: number) => void,
): Authorizer {
  return {
    authorize(attributes) {
      const startMs = monotonic();
      const answer = inner.authorize(attributes);
      if (answer instanceof Promise)
        return answer.then((decision) => {
          note(decision, startMs);
          return decision;
        });
      note(answer, startMs);
      return answer;
    },
  };
}
