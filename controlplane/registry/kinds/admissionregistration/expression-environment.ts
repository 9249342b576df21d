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
  struct,
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
const WANTED: Readonly<Partial<Record<ExpressionPlace, CelType>>> = {
  matchCondition: bool,
  validation: bool,
  deviceSelector: bool,
  messageExpression: string,
  auditAnnotation: string,
  applyConfiguration: patchObject('Object'),
  jsonPatch: jsonPatchesType,
};

function environmentOf(question: ExpressionQuestion): CelEnvironment {
  const { place, params, authorizer, variables } = question;
  if (place === 'deviceSelector') return DEVICE_ENVIRONMENT;
  const known: Record<string, CelType> = { object: dyn, oldObject: dyn, request: requestType };
  if (place !== 'matchCondition') known['namespaceObject'] = namespaceType;
  if (params) known['params'] = dyn;
  if (authorizer) {
    known['authorizer'] = opaque('kubernetes.authorization.Authorizer');
    known['authorizer.requestResource'] = opaque('kubernetes.authorization.ResourceCheck');
  }
  if (variables.length > 0) known['variables'] = variablesType(variables, { ...question, variables: [] });
  const patches = place === 'applyConfiguration' || place === 'jsonPatch';
  return patches ? { variables: known, ...PATCH_DECLARATIONS } : { variables: known };
}

/** Each variable has the type of its expression. A variable whose expression does not compile has the dynamic type. */
function variablesType(variables: readonly NamedExpression[], question: ExpressionQuestion): CelType {
  const types: Record<string, CelType> = {};
  const before: NamedExpression[] = [];
  for (const variable of variables) {
    types[variable.name] = typeOf({
      ...question,
      place: 'variable',
      expression: variable.expression,
      variables: before,
    });
    before.push(variable);
  }
  return struct('kubernetes.variables', types);
}

function typeOf(question: ExpressionQuestion): CelType {
  try {
    return compile(question.expression, environmentOf(question)).type;
  } catch (error) {
    if (error instanceof CelCompileError) return dyn;
    throw error;
  }
}

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
  const wanted = WANTED[place];
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
