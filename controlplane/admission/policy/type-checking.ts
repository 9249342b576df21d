/**
 * Checks the expressions of validating policies against the kinds that they match, and writes type errors into the status of
 * the policy. Each generation of a policy is checked once.
 */
import { struct } from '../../../api/cel/admission-variables.ts';
import { CelCompileError, compile } from '../../../api/cel/cel.ts';
import { bytes, bool, type CelType, double, dyn, int, list, map, string, timestamp } from '../../../api/cel/types.ts';
import type { Logger } from '../../../api/component/logger.ts';
import type { Client } from '../../../api/machinery/client.ts';
import { validatingAdmissionPolicies, type ResourceOf } from '../../../api/machinery/resources.ts';
import { type GroupVersionKind, parseApiVersion } from '../../../api/meta/object.ts';
import { isConflict, isNotFound } from '../../../api/meta/status-error.ts';
import type { ResourceInfo, Scalar, StructType, TypeNode } from '../../../api/schema/schema.ts';
import type { Sources } from '../../readers/sources.ts';
import { ADMISSION_VARIABLES } from './expressions.ts';
import type { Policy } from './policy-types.ts';

export interface TypeCheckingOptions {
  readonly sources: Sources;
  readonly client: Client;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  readonly resources: () => readonly ResourceInfo[];
  /** The type of a kind's objects; `undefined` if it is not known. */
  readonly typeOfKind: (kind: GroupVersionKind) => CelType | undefined;
}

interface ExpressionWarning {
  readonly fieldRef: string;
  readonly warning: string;
}

interface CheckedPolicy extends Policy {
  status?: {
    observedGeneration?: number;
    typeChecking?: { expressionWarnings?: ExpressionWarning[] };
  };
}

/** The maximum number of kinds that a policy is checked against. */
const MAX_KINDS = 10;

export function startTypeChecking(options: TypeCheckingOptions): void {
  const policies = options.sources.of<CheckedPolicy>(validatingAdmissionPolicies as ResourceOf<CheckedPolicy>);
  policies.subscribe(({ current }) => {
    if (current === undefined || options.signal.aborted) return;
    const generation = Number(current.metadata.generation ?? 0);
    if (current.status?.observedGeneration === generation && current.status.typeChecking !== undefined) return;
    write(current, generation, options).catch((error: unknown) => {
      // An event will bring the newer state of the policy.
      if (options.signal.aborted || isConflict(error) || isNotFound(error)) return;
      options.logger.warn({ err: error, policy: current.metadata.name }, 'The status of a policy could not be written');
    });
  });
}

async function write(policy: CheckedPolicy, generation: number, options: TypeCheckingOptions): Promise<void> {
  const expressionWarnings = warningsOf(policy, options);
  const status = {
    ...policy.status,
    observedGeneration: generation,
    typeChecking: expressionWarnings.length === 0 ? {} : { expressionWarnings },
  };
  await options.client.update(
    validatingAdmissionPolicies,
    { ...structuredClone(policy), status },
    { subresource: 'status', signal: options.signal },
  );
}

export function warningsOf(
  policy: Policy,
  options: Pick<TypeCheckingOptions, 'resources' | 'typeOfKind'>,
): ExpressionWarning[] {
  const { spec = {} } = policy;
  const kinds = kindsOf(policy, options.resources());
  const params = paramsType(policy, options);
  const warnings: ExpressionWarning[] = [];
  const check = (source: string | undefined, fieldRef: string): void => {
    if (source === undefined || source === '') return;
    const faults = kinds.flatMap((kind) => {
      const type = options.typeOfKind(kind);
      const fault = type === undefined ? undefined : faultOf(policy, source, type, params);
      return fault === undefined ? [] : [`${kind.group}/${kind.version}, Kind=${kind.kind}: ${fault}\n`];
    });
    if (faults.length > 0) warnings.push({ fieldRef, warning: faults.join('\n') });
  };
  (spec.validations ?? []).forEach(({ expression, messageExpression }, index) => {
    check(expression, `spec.validations[${index}].expression`);
    check(messageExpression, `spec.validations[${index}].messageExpression`);
  });
  return warnings;
}

/** Rules with wildcards do not name a kind. */
function kindsOf({ spec = {} }: Policy, resources: readonly ResourceInfo[]): GroupVersionKind[] {
  const found = new Map<string, GroupVersionKind>();
  for (const { apiGroups = [], apiVersions = [], resources: names = [] } of spec.matchConstraints?.resourceRules ??
    []) {
    if ([...apiGroups, ...apiVersions, ...names].some((one) => one.includes('*'))) continue;
    for (const { group, version, resource, kind } of resources) {
      if (!apiGroups.includes(group) || !apiVersions.includes(version) || !names.includes(resource)) continue;
      found.set(`${group}/${version}/${kind}`, { group, version, kind });
    }
  }
  return [...found.values()].slice(0, MAX_KINDS);
}

/** Parameters of an unknown kind have the dynamic type. */
function paramsType({ spec = {} }: Policy, { typeOfKind }: Pick<TypeCheckingOptions, 'typeOfKind'>): CelType {
  const { apiVersion = '', kind = '' } = spec.paramKind ?? {};
  const gv = parseApiVersion(apiVersion);
  return (gv === undefined ? undefined : typeOfKind({ ...gv, kind })) ?? dyn;
}

function faultOf({ spec = {} }: Policy, source: string, type: CelType, params: CelType): string | undefined {
  const variables: Record<string, CelType> = {};
  const environment = {
    variables: {
      ...ADMISSION_VARIABLES,
      object: type,
      oldObject: type,
      params,
      variables: struct('kubernetes.variables', variables),
    },
  };
  try {
    for (const { name, expression } of spec.variables ?? []) {
      const compiled = compile(expression.trim(), environment).type;
      variables[name] = compiled;
    }
    compile(source.trim(), environment);
    return undefined;
  } catch (error) {
    if (error instanceof CelCompileError) return error.message;
    throw error;
  }
}

const SCALARS: Readonly<Partial<Record<Scalar, CelType>>> = {
  string,
  boolean: bool,
  int32: int,
  int64: int,
  double,
  bytes,
  time: timestamp,
  microTime: timestamp,
  duration: string,
};

const structTypes = new WeakMap<StructType, CelType>();

/** The type of a struct of the schema. */
export function typeOfStruct(of: StructType): CelType {
  let type = structTypes.get(of);
  if (type === undefined) {
    type = {
      kind: 'object',
      name: of.name,
      field(name) {
        const field = of.fields.get(name);
        if (field !== undefined) return typeOfNode(field.type);
        return of.preserveUnknown === true ? dyn : undefined;
      },
    };
    structTypes.set(of, type);
  }
  return type;
}

function typeOfNode(node: TypeNode): CelType {
  switch (node.kind) {
    case 'scalar':
      return SCALARS[node.scalar] ?? dyn;
    case 'list':
      return list(typeOfNode(node.items));
    case 'map':
      return map(string, typeOfNode(node.values));
    case 'struct':
      return node.struct.preserveUnknown === true && node.struct.fields.size === 0 ? dyn : typeOfStruct(node.struct);
  }
}
