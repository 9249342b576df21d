/**
 * Defines the flow schemas and priority levels that every cluster has. The specs of the mandatory ones are immutable, except
 * for `spec.exempt` of the level `exempt`. The suggested ones are restored, unless their annotation
 * `apf.kubernetes.io/autoupdate-spec` shows that clients maintain them.
 */
import type { FlowSchemaSpec, PriorityLevelSpec } from './flowcontrol-types.ts';
import {
  AUTHENTICATED_GROUP,
  MASTERS_GROUP,
  NODES_GROUP,
  UNAUTHENTICATED_GROUP,
} from '../../../../api/meta/system-users.ts';
import { SYSTEM_NAMESPACE } from '../../../../api/meta/system-namespaces.ts';

interface Queueing {
  readonly queues: number;
  readonly handSize: number;
}

function limited(shares: number, lendable: number, queueing?: Queueing): PriorityLevelSpec {
  return {
    type: 'Limited',
    limited: {
      nominalConcurrencyShares: shares,
      lendablePercent: lendable,
      limitResponse:
        queueing === undefined ? { type: 'Reject' } : { type: 'Queue', queuing: { ...queueing, queueLengthLimit: 50 } },
    },
  };
}

type Rule = NonNullable<FlowSchemaSpec['rules']>[number];
type Subject = NonNullable<Rule['subjects']>[number];
type ResourceRule = NonNullable<Rule['resourceRules']>[number];

const EVERYTHING: readonly ResourceRule[] = [
  { verbs: ['*'], apiGroups: ['*'], resources: ['*'], clusterScope: true, namespaces: ['*'] },
];
const EVERY_URL = [{ verbs: ['*'], nonResourceURLs: ['*'] }];

const group = (name: string): Subject => ({ kind: 'Group', group: { name } });
const user = (name: string): Subject => ({ kind: 'User', user: { name } });
const systemAccount = (name: string): Subject => ({
  kind: 'ServiceAccount',
  serviceAccount: { name, namespace: SYSTEM_NAMESPACE },
});

const anything = (...subjects: Subject[]): Rule => ({
  subjects,
  resourceRules: [...EVERYTHING],
  nonResourceRules: EVERY_URL,
});

function resources(subjects: Subject[], ...rules: ResourceRule[]): Rule {
  return { subjects, resourceRules: rules };
}

const LEASES: ResourceRule = {
  verbs: ['get', 'create', 'update'],
  apiGroups: ['coordination.k8s.io'],
  resources: ['leases'],
  namespaces: ['*'],
};

function schema(
  level: string,
  precedence: number,
  by: 'ByUser' | 'ByNamespace' | '',
  ...rules: Rule[]
): FlowSchemaSpec {
  return {
    priorityLevelConfiguration: { name: level },
    matchingPrecedence: precedence,
    ...(by === '' ? {} : { distinguisherMethod: { type: by } }),
    rules,
  };
}

const EVERYBODY = [group(UNAUTHENTICATED_GROUP), group(AUTHENTICATED_GROUP)];

/** The levels that are always restored, by name. */
export const MANDATORY_LEVELS: Readonly<Record<string, PriorityLevelSpec>> = {
  exempt: { type: 'Exempt', exempt: { nominalConcurrencyShares: 0, lendablePercent: 0 } },
  'catch-all': limited(5, 0),
};

/** The levels that are created if they are missing, and that clients may change, by name. */
export const SUGGESTED_LEVELS: Readonly<Record<string, PriorityLevelSpec>> = {
  system: limited(30, 33, { queues: 64, handSize: 6 }),
  'node-high': limited(40, 25, { queues: 64, handSize: 6 }),
  'leader-election': limited(10, 0, { queues: 16, handSize: 4 }),
  'workload-high': limited(40, 50, { queues: 128, handSize: 6 }),
  'workload-low': limited(100, 90, { queues: 128, handSize: 6 }),
  'global-default': limited(20, 50, { queues: 128, handSize: 6 }),
};

/** The schemas that are always restored, by name. Their spec is fixed. */
export const MANDATORY_SCHEMAS: Readonly<Record<string, FlowSchemaSpec>> = {
  exempt: schema('exempt', 1, '', anything(group(MASTERS_GROUP))),
  'catch-all': schema('catch-all', 10_000, 'ByUser', anything(...EVERYBODY)),
};

const CONTROLLER_MANAGER = user('system:kube-controller-manager');
const SCHEDULER = user('system:kube-scheduler');
const NODES = group(NODES_GROUP);

/** The schemas that are created if they are missing, and that clients may change, by name. */
export const SUGGESTED_SCHEMAS: Readonly<Record<string, FlowSchemaSpec>> = {
  'system-nodes': schema('system', 500, 'ByUser', anything(NODES)),
  'system-node-high': schema(
    'node-high',
    400,
    'ByUser',
    resources(
      [NODES],
      {
        verbs: ['*'],
        apiGroups: [''],
        resources: ['nodes', 'nodes/status'],
        clusterScope: true,
        namespaces: ['*'],
      },
      { verbs: ['*'], apiGroups: ['coordination.k8s.io'], resources: ['leases'], namespaces: ['*'] },
    ),
  ),
  'system-leader-election': schema(
    'leader-election',
    100,
    'ByUser',
    resources([CONTROLLER_MANAGER, SCHEDULER, systemAccount('*')], LEASES),
  ),
  'workload-leader-election': schema('leader-election', 200, 'ByUser', resources([systemAccount('*')], LEASES)),
  'endpoint-controller': schema(
    'workload-high',
    150,
    'ByUser',
    resources(
      [CONTROLLER_MANAGER, systemAccount('endpoint-controller'), systemAccount('endpointslicemirroring-controller')],
      { verbs: ['get', 'create', 'update'], apiGroups: [''], resources: ['endpoints'], namespaces: ['*'] },
    ),
  ),
  'kube-controller-manager': schema('workload-high', 800, 'ByNamespace', anything(CONTROLLER_MANAGER)),
  'kube-scheduler': schema('workload-high', 800, 'ByNamespace', anything(SCHEDULER)),
  'kube-system-service-accounts': schema('workload-high', 900, 'ByNamespace', anything(systemAccount('*'))),
  'service-accounts': schema('workload-low', 9000, 'ByUser', anything(group('system:serviceaccounts'))),
  'global-default': schema('global-default', 9900, 'ByUser', anything(...EVERYBODY)),
  probes: schema('exempt', 2, '', {
    subjects: EVERYBODY,
    nonResourceRules: [{ verbs: ['get'], nonResourceURLs: ['/healthz', '/readyz', '/livez'] }],
  }),
};
