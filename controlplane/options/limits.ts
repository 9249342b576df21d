/** Defines the flags that limit requests: how many run at a time, and how long they may take. */
import { flag } from '../../api/component/flags.ts';

const LIMITS = 'Limits';

/** The rows by the property under which the program reads them. */
export const limitsFlags = {
  maxRequestsInflight: flag({
    name: 'max-requests-inflight',
    type: 'integer',
    default: 400,
    group: LIMITS,
    help: 'Reading requests at a time. With priority and fairness the sum of both limits is divided among the priority levels; without it, 0 is no limit.',
  }),
  maxMutatingRequestsInflight: flag({
    name: 'max-mutating-requests-inflight',
    type: 'integer',
    default: 200,
    group: LIMITS,
    help: 'Writing requests at a time; see --max-requests-inflight.',
  }),
  enablePriorityAndFairness: flag({
    name: 'enable-priority-and-fairness',
    type: 'boolean',
    default: true,
    group: LIMITS,
    help: 'Requests are queued and dispatched by FlowSchemas and PriorityLevelConfigurations; otherwise those over the limits are answered with 429.',
  }),
  requestTimeout: flag({
    name: 'request-timeout',
    type: 'duration',
    default: 60_000,
    group: LIMITS,
    help: 'Time after which a request other than a watch or a stream is ended.',
  }),
} as const;
