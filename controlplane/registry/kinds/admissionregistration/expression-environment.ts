/**
 * Implements `expression-checks.ts` with CEL: the variables that are available at the place of an expression, and the type that
 * it must have.
 */
import {
  jsonPatchesType,
  namespaceType,
  PATCH_DECLARATIONS,
  patchObject,
  requestType,
} from '../../../../api/cel/admission-variables.ts';
import { compile, CelCompileError, type CelEnvironment } from '../../../../api/cel/cel.ts';
import { bool, dyn, isExactly, isOpen, opaque, showType, string, type CelType } from '../../../../api/cel/types.ts';
import { DEVICE_ENVIRONMENT } from '../../../../api/cel/device-environment.ts';
import {
  type ExpressionChecker,
  type ExpressionPlace,
  type ExpressionQuestion,
  type NamedExpression,
  TOO_COMPLEX,
} from './expression-checks.ts';

/** The cost limit of a device selector. */
const MAX_DEVICE_COST = 1_000_000;

/** The type to which an expression of a place must evaluate. A place without a row accepts any type. */
const RESULT_TYPES: Readonly<Partial<Record<ExpressionPlace, CelType>>> = {
  matchCondition: bool,
  validation: bool,
  deviceSelector: bool,
  messageExpression: string,
  auditAnnotation: string,
  applyConfiguration: patchObject('Object'),
  jsonPatch: jsonPatchesType,
};

function environmentOf(question: ExpressionQuestion): CelEnvironment {
  const { place, params, authorizer } = question;
  if (place === 'deviceSelector') return DEVICE_ENVIRONMENT;
  const variables: Record<string, CelType> = { object: dyn, oldObject: dyn, request: requestType };
  if (place !== 'matchCondition') variables['namespaceObject'] = namespaceType;
  if (params) variables['params'] = dyn;
  if (authorizer) {
    variables['authorizer'] = opaque('kubernetes.authorization.Authorizer');
    variables['authorizer.requestResource'] = opaque('kubernetes.authorization.ResourceCheck');
  }
  if (question.visible > 0) variables['variables'] = variablesType(question);
  const patches = place === 'applyConfiguration' || place === 'jsonPatch';
  return patches ? { variables, ...PATCH_DECLARATIONS } : { variables };
}

/** The types of those variables of a policy that were compiled so far, by name. */
interface TypedVariables {
  readonly types: Map<string, { readonly at: number; readonly type: CelType }>;
  count: number;
}

/** Each variable is compiled once, although all expressions after it may use it. */
const typedVariables = new WeakMap<readonly NamedExpression[], TypedVariables>();

/**
 * Returns the type of `variables`. Each member has the type of its expression, and the dynamic type if that does not compile.
 */
function variablesType({ variables, visible, params }: ExpressionQuestion): CelType {
  let typed = typedVariables.get(variables);
  if (typed === undefined) {
    typed = { types: new Map(), count: 0 };
    typedVariables.set(variables, typed);
  }
  for (const { name, expression } of variables.slice(typed.count, visible)) {
    const at = typed.count;
    const type = typeOf({ place: 'variable', expression, params, authorizer: true, variables, visible: at });
    typed.types.set(name, { at, type });
    typed.count += 1;
  }
  const { types } = typed;
  const field = (name: string): CelType | undefined => {
    const found = types.get(name);
    return found !== undefined && found.at < visible ? found.type : undefined;
  };
  return { kind: 'object', name: 'kubernetes.variables', field };
}

function typeOf(question: ExpressionQuestion): CelType {
  try {
    return compile(question.expression, environmentOf(question)).type;
  } catch (error) {
    if (error instanceof CelCompileError) return dyn;
    throw error;
  }
}

/** Returns why an expression is invalid at its place, `TOO_COMPLEX` if its cost exceeds the limit, or `undefined`. */
export const checkExpression: ExpressionChecker = (question) => {
  const { place, expression } = question;
  let type: CelType;
  let maxCost: number | undefined;
  try {
    ({ type, maxCost } = compile(expression, environmentOf(question)));
  } catch (error) {
    if (error instanceof CelCompileError) return error.reason;
    throw error;
  }
  if (place === 'deviceSelector' && (maxCost ?? 0) > MAX_DEVICE_COST) return TOO_COMPLEX;
  const wanted = RESULT_TYPES[place];
  if (wanted === undefined || (place === 'deviceSelector' && isOpen(type)) || isExactly(wanted, type)) return undefined;
  // A null result means that no annotation is added.
  if (place === 'auditAnnotation' && type.kind === 'null') return undefined;
  const found = type.kind === 'null' ? 'null_type' : showType(type);
  switch (place) {
    case 'auditAnnotation':
      return `must evaluate to one of [string null_type] but got ${found}`;
    case 'deviceSelector':
      return `must evaluate to bool or the unknown type, not ${found}`;
    default:
      return `must evaluate to ${showType(wanted)} but got ${found}`;
  }
};
