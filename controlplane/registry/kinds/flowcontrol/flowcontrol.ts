/** Defines the strategies of FlowSchema and PriorityLevelConfiguration. `server/flowcontrol/` applies the stored objects. */
import {
  duplicate,
  type FieldError,
  forbidden,
  invalid,
  notSupported,
  required,
} from '../../../../api/meta/field-error.ts';
import { semanticEqual } from '../../../../api/meta/json-equality.ts';
import type { KubeObject, ObjectMeta } from '../../../../api/meta/object.ts';
import { ownMember } from '../../../../api/meta/own-member.ts';
import { internalForm } from '../../../../api/schema/internal-form.ts';
import { flowSchemaColumns, priorityLevelColumns } from './columns.ts';
import { restore, specAndStatus } from '../../generic-strategy.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';
import { within } from '../field-rules.ts';
import { flowSchemaErrors } from './flow-schema-validation.ts';
import { MANDATORY_LEVELS, MANDATORY_SCHEMAS } from './flowcontrol-defaults.ts';
import type { FlowSchema, PriorityLevel, PriorityLevelSpec } from './flowcontrol-types.ts';

const GROUP = 'flowcontrol.apiserver.k8s.io';

interface Condition {
  readonly type?: string | undefined;
}

function conditionErrors(conditions: readonly Condition[]): FieldError[] {
  const seen = new Set<string>();
  return conditions.flatMap(({ type = '' }, index) => {
    const field = `status.conditions[${index}].type`;
    const errors = seen.has(type) ? [duplicate(field, type)] : [];
    seen.add(type);
    if (type === '') errors.push(required(field));
    return errors;
  });
}

/** The strategy of the subresource `status`. It changes the status and, of the metadata, only the managed fields. */
const statusAlone: UpdateStrategy = {
  prepareForUpdate(object: KubeObject, old: KubeObject) {
    restore(object, old, 'spec');
    const { managedFields, resourceVersion } = object.metadata;
    const metadata: ObjectMeta = { ...old.metadata };
    delete metadata.managedFields;
    if (managedFields !== undefined) metadata.managedFields = managedFields;
    if (resourceVersion !== undefined) metadata.resourceVersion = resourceVersion;
    object.metadata = metadata;
  },
  validateUpdate: (object) =>
    conditionErrors((object['status'] as { conditions?: Condition[] } | undefined)?.conditions ?? []),
  resetFields: [['spec'], ['metadata']],
};

/** The default of `matchingPrecedence` (flowcontrol.apiserver.k8s.io/v1). */
const DEFAULT_PRECEDENCE = 1000;

function schemaErrors(object: FlowSchema): FieldError[] {
  const { name = '' } = object.metadata;
  const errors = flowSchemaErrors(name, object.spec ?? {});
  const fixed = ownMember(MANDATORY_SCHEMAS, name);
  if (fixed !== undefined && !semanticEqual(object.spec, fixed))
    errors.push(
      invalid(
        'spec',
        internalForm('io.k8s.api.flowcontrol.v1.FlowSchemaSpec', object.spec),
        `spec of '${name}' must equal the fixed value`,
      ),
    );
  return [...errors, ...conditionErrors(object.status?.conditions ?? [])];
}

const flowSchemas: Strategy<FlowSchema> = {
  metadataChecks: ['whole'],
  ...specAndStatus,
  applyDefaults(object) {
    const spec = (object.spec ??= {});
    if ((spec.matchingPrecedence ?? 0) === 0) spec.matchingPrecedence = DEFAULT_PRECEDENCE;
  },
  validateCreate: schemaErrors,
  validateUpdate: schemaErrors,
  columns: flowSchemaColumns,
  status: statusAlone as UpdateStrategy<FlowSchema>,
};

const LEVEL_TYPES = ['Exempt', 'Limited'];
const RESPONSES = ['Queue', 'Reject'];
/** The most queues of a level, as in kube-apiserver. */
const MAX_QUEUES = 10_000_000;
/** The number of hash bits that select the queues of a flow. */
const MAX_HASH_BITS = 60;
const NOT_NEGATIVE = 'must be a non-negative integer';

type Limited = NonNullable<PriorityLevelSpec['limited']>;
type Queuing = NonNullable<NonNullable<Limited['limitResponse']>['queuing']>;

function levelDefaults(object: PriorityLevel): void {
  const { limited, exempt } = object.spec ?? {};
  if (limited !== undefined) {
    limited.nominalConcurrencyShares ??= 30;
    limited.lendablePercent ??= 0;
    const queuing = limited.limitResponse?.queuing;
    if (queuing !== undefined) {
      queuing.queues = orElse(queuing.queues, 64);
      queuing.handSize = orElse(queuing.handSize, 8);
      queuing.queueLengthLimit = orElse(queuing.queueLengthLimit, 50);
    }
  }
  if (exempt !== undefined) {
    exempt.nominalConcurrencyShares ??= 0;
    exempt.lendablePercent ??= 0;
  }
}

const orElse = (value: number | undefined, fallback: number): number =>
  value === undefined || value === 0 ? fallback : value;

function levelErrors(object: PriorityLevel): FieldError[] {
  const { name = '' } = object.metadata;
  const spec: PriorityLevelSpec = object.spec ?? {};
  const { type = '', limited, exempt } = spec;
  const errors: FieldError[] = [];
  if ((name === 'exempt') !== (type === 'Exempt'))
    errors.push(invalid('spec.type', type, "must be 'Exempt' if and only if `name` is 'exempt'"));
  if (type === 'Exempt') {
    if (exempt !== undefined)
      errors.push(...shareErrors(exempt, 'spec.exempt'), ...lendingErrors(exempt, 'spec.exempt'));
    if (limited !== undefined) errors.push(forbidden('spec.limited', 'must be nil if the type is not Limited'));
  } else if (type === 'Limited') {
    if (exempt !== undefined) errors.push(forbidden('spec.exempt', 'must be nil if the type is Limited'));
    if (limited === undefined) errors.push(required('spec.limited', 'must not be empty when type is Limited'));
    else errors.push(...limitedErrors(limited));
  } else errors.push(notSupported('spec.type', type, LEVEL_TYPES));
  return [...errors, ...fixedErrors(name, spec), ...conditionErrors(object.status?.conditions ?? [])];
}

function fixedErrors(name: string, spec: PriorityLevelSpec): FieldError[] {
  const fixed = ownMember(MANDATORY_LEVELS, name);
  if (fixed === undefined) return [];
  const shown = internalForm('io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec', spec);
  if (name !== 'exempt')
    return semanticEqual(spec, fixed) ? [] : [invalid('spec', shown, `spec of '${name}' must equal the fixed value`)];
  if (semanticEqual({ ...spec, exempt: {} }, { ...fixed, exempt: {} })) return [];
  return [invalid('spec', shown, `spec of '${name}' except the 'spec.exempt' field must equal the fixed value`)];
}

interface Shares {
  readonly nominalConcurrencyShares?: number | undefined;
  readonly lendablePercent?: number | undefined;
}

function shareErrors({ nominalConcurrencyShares: shares = 0 }: Shares, at: string): FieldError[] {
  return shares < 0 ? [invalid(`${at}.nominalConcurrencyShares`, shares, NOT_NEGATIVE)] : [];
}

const lendingErrors = ({ lendablePercent }: Shares, at: string): FieldError[] =>
  within(`${at}.lendablePercent`, lendablePercent, 0, 100);

function limitedErrors(limited: Limited): FieldError[] {
  const at = 'spec.limited';
  const errors = shareErrors(limited, at);
  const { type = '', queuing } = limited.limitResponse ?? {};
  const field = `${at}.limitResponse.queuing`;
  if (type === 'Queue') {
    if (queuing !== undefined) errors.push(...queuingErrors(queuing, field));
    else errors.push(required(field, 'must not be empty if limited.limitResponse.type is Limited'));
  } else if (type === 'Reject') {
    if (queuing !== undefined)
      errors.push(forbidden(field, 'must be nil if limited.limitResponse.type is not Limited'));
  } else errors.push(notSupported(`${at}.limitResponse.type`, type, RESPONSES));
  errors.push(...lendingErrors(limited, at));
  const borrowing = limited.borrowingLimitPercent;
  if (borrowing !== undefined && borrowing < 0)
    errors.push(invalid(`${at}.borrowingLimitPercent`, borrowing, `if specified, ${NOT_NEGATIVE}`));
  return errors;
}

function queuingErrors({ queues = 0, handSize = 0, queueLengthLimit = 0 }: Queuing, at: string): FieldError[] {
  const errors: FieldError[] = [];
  const positive = (field: string, value: number): void => {
    if (value <= 0) errors.push(invalid(`${at}.${field}`, value, 'must be positive'));
  };
  positive('queueLengthLimit', queueLengthLimit);
  positive('queues', queues);
  if (queues > MAX_QUEUES) errors.push(invalid(`${at}.queues`, queues, `must not be greater than ${MAX_QUEUES}`));
  positive('handSize', handSize);
  if (handSize <= 0) return errors;
  if (handSize > queues) {
    errors.push(invalid(`${at}.handSize`, handSize, `should not be greater than queues (${queues})`));
  } else if (Math.ceil(Math.log2(queues) * handSize) > MAX_HASH_BITS) {
    const text = `required entropy bits of deckSize ${queues} and handSize ${handSize} should not be greater than ${MAX_HASH_BITS}`;
    errors.push(invalid(`${at}.handSize`, handSize, text));
  }
  return errors;
}

const priorityLevels: Strategy<PriorityLevel> = {
  metadataChecks: ['whole'],
  ...specAndStatus,
  applyDefaults: levelDefaults,
  validateCreate: levelErrors,
  validateUpdate: levelErrors,
  columns: priorityLevelColumns,
  status: statusAlone as UpdateStrategy<PriorityLevel>,
};

export const flowControlKinds = [
  kindRow(GROUP, 'flowschemas', flowSchemas),
  kindRow(GROUP, 'prioritylevelconfigurations', priorityLevels),
];
