/**
 * Finds the expressions of validating policies that cannot be valid for the kinds that the policies match, as
 * kube-controller-manager does.
 */
import { struct } from '../../../api/cel/admission-variables.ts';
import { CelCompileError, type CelEnvironment, compile } from '../../../api/cel/cel.ts';
import { bytes, bool, type CelType, double, dyn, int, list, map, string, timestamp } from '../../../api/cel/types.ts';
import { type GroupVersionKind, parseApiVersion } from '../../../api/meta/object.ts';
import type { ResourceInfo, Scalar, StructType, TypeNode } from '../../../api/schema/schema.ts';
import { ADMISSION_VARIABLES } from '../../security/admission/policy/expressions.ts';
import type { Policy } from '../../security/admission/policy/policy-types.ts';

/** The kinds that the API serves, and the types of their objects in CEL. */
export interface KindTypes {
  readonly resources: () => readonly ResourceInfo[];
  /** Returns the fields of a built-in kind. */
  readonly structOf: (kind: GroupVersionKind) => StructType | undefined;
  /** Returns the type that a definition declares for a custom kind. */
  readonly definedTypeOf: (kind: GroupVersionKind) => CelType | undefined;
}

export interface ExpressionWarning {
  /** The path of the expression, such as `spec.validations[0].expression`. */
  readonly fieldRef: string;
  readonly warning: string;
}

/** The maximum number of kinds that a policy is checked against. */
const MAX_KINDS = 10;

/**
 * Returns the type errors of the policy's expressions for the kinds that it matches. Yields after each expression, because
 * policies may have thousands.
 */
export function* warningsOf(policy: Policy, options: KindTypes): Generator<void, ExpressionWarning[], undefined> {
  const { spec = {} } = policy;
  const params = paramsType(policy, options);
  const environments: KindEnvironment[] = [];
  for (const kind of yield* kindsOf(policy, options.resources())) {
    const type = typeOfKind(kind, options);
    if (type !== undefined) environments.push(yield* environmentOf(policy, kind, { object: type, params }));
  }
  const warnings: ExpressionWarning[] = [];
  for (const [fieldRef, source] of expressionsOf(spec)) {
    const faults: string[] = [];
    for (const environment of environments) {
      const fault = environment.fault ?? faultOf(source, environment.declarations);
      const { group, version, kind } = environment.kind;
      if (fault !== undefined) faults.push(`${group}/${version}, Kind=${kind}: ${fault}\n`);
      yield;
    }
    if (faults.length > 0) warnings.push({ fieldRef, warning: faults.join('\n') });
  }
  return warnings;
}

/** Returns the expressions that are checked, with their paths. */
function* expressionsOf({ validations = [] }: NonNullable<Policy['spec']>): Generator<readonly [string, string]> {
  for (const [index, { expression, messageExpression = '' }] of validations.entries()) {
    if (expression !== '') yield [`spec.validations[${index}].expression`, expression];
    if (messageExpression !== '') yield [`spec.validations[${index}].messageExpression`, messageExpression];
  }
}

/** Finds the kinds that a policy matches. Rules with wildcards do not name a kind. Yields after each rule. */
function* kindsOf(
  { spec = {} }: Policy,
  resources: readonly ResourceInfo[],
): Generator<void, GroupVersionKind[], undefined> {
  const found = new Map<string, GroupVersionKind>();
  for (const rule of spec.matchConstraints?.resourceRules ?? []) {
    const { apiGroups = [], apiVersions = [], resources: names = [] } = rule;
    if ([apiGroups, apiVersions, names].some((list) => list.some((one) => one.includes('*')))) continue;
    const [groups, versions, resourceNames] = [new Set(apiGroups), new Set(apiVersions), new Set(names)];
    for (const { group, version, resource, kind } of resources) {
      if (!groups.has(group) || !versions.has(version) || !resourceNames.has(resource)) continue;
      found.set(`${group}/${version}/${kind}`, { group, version, kind });
      if (found.size === MAX_KINDS) return [...found.values()];
    }
    yield;
  }
  return [...found.values()];
}

/** Returns `undefined` if the kind is not known. */
function typeOfKind(kind: GroupVersionKind, { structOf, definedTypeOf }: KindTypes): CelType | undefined {
  const struct = structOf(kind);
  return struct === undefined ? definedTypeOf(kind) : typeOfStruct(struct);
}

/** Returns the type of `params`. Parameters of an unknown kind have the dynamic type. */
function paramsType({ spec = {} }: Policy, kinds: KindTypes): CelType {
  const { apiVersion = '', kind = '' } = spec.paramKind ?? {};
  const gv = parseApiVersion(apiVersion);
  return (gv === undefined ? undefined : typeOfKind({ ...gv, kind }, kinds)) ?? dyn;
}

/** What the expressions of a policy may use for objects of one kind. */
interface KindEnvironment {
  readonly kind: GroupVersionKind;
  readonly declarations: CelEnvironment;
  /** Why a variable does not compile. Then no expression of the policy can be checked. */
  readonly fault: string | undefined;
}

function* environmentOf(
  { spec = {} }: Policy,
  kind: GroupVersionKind,
  { object, params }: { readonly object: CelType; readonly params: CelType },
): Generator<void, KindEnvironment, undefined> {
  const types: Record<string, CelType> = {};
  const variables = struct('kubernetes.variables', types);
  const declarations = { variables: { ...ADMISSION_VARIABLES, object, oldObject: object, params, variables } };
  for (const { name, expression } of spec.variables ?? []) {
    try {
      types[name] = compile(expression.trim(), declarations).type;
    } catch (error) {
      if (error instanceof CelCompileError) return { kind, declarations, fault: error.message };
      throw error;
    }
    yield;
  }
  return { kind, declarations, fault: undefined };
}

function faultOf(source: string, declarations: CelEnvironment): string | undefined {
  try {
    compile(source.trim(), declarations);
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

/** Returns the type of a struct of the schema. */
function typeOfStruct(structType: StructType): CelType {
  let type = structTypes.get(structType);
  if (type === undefined) {
    type = {
      kind: 'object',
      name: structType.name,
      field(name) {
        const field = structType.fields.get(name);
        if (field !== undefined) return typeOfNode(field.type);
        return structType.preserveUnknown === true ? dyn : undefined;
      },
    };
    structTypes.set(structType, type);
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
