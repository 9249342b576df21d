/**
 * Maps the claims of a verified token to a user: the validation rules and mappings of an authentication configuration, in CEL.
 */
import { isJsonObject } from '../../../api/meta/json-object.ts';
import { stringifyJson } from '../../../api/codec/json.ts';
import { CelCompileError, compile, type Program } from '../../../api/cel/cel.ts';
import { type CelType, dyn, map, string } from '../../../api/cel/types.ts';
import type { UserInfo } from '../../model/user-info.ts';

type Claims = Readonly<Record<string, unknown>>;
type Mapping = (claims: Claims) => unknown;

const CLAIMS = { claims: map(string, dyn) };
const USER = { user: dyn };
const MISSING = Symbol('missing');

/**
 * Compiles the rules of an issuer into a function that returns the user of valid claims. Throws an error with the path and the
 * reason for invalid rules. The returned function throws if the claims violate a rule.
 */
export function claimRules(rules: Readonly<Record<string, unknown>>): (claims: Claims) => UserInfo {
  const { claimValidationRules, claimMappings, userValidationRules } = rules;
  const mappings = isJsonObject(claimMappings) ? claimMappings : {};
  const checks = listOf(claimValidationRules).map((rule, i) => claimCheck(rule, `claimValidationRules[${i}]`));
  const username = mapping(mappings['username'], 'claimMappings.username');
  if (username === undefined)
    throw new Error('claimMappings.username: Required value: claim or expression is required');
  checkEmail(rules);
  const groups = mapping(mappings['groups'], 'claimMappings.groups');
  const uid = mapping(mappings['uid'], 'claimMappings.uid', { hasPrefix: false });
  const extra = listOf(mappings['extra']).map((row, i) => extraMapping(row, `claimMappings.extra[${i}]`));
  const userChecks = listOf(userValidationRules).map((rule, i) => {
    const at = `userValidationRules[${i}]`;
    return { program: compiled(rule['expression'], USER, `${at}.expression`), ...messageOf(rule) };
  });
  return (claims) => {
    for (const check of checks) check(claims);
    const name = username(claims);
    if (typeof name !== 'string' || name === '') throw new Error('username claim not present or no text');
    const id = uid?.(claims);
    if (id !== undefined && id !== MISSING && typeof id !== 'string') throw new Error('uid claim is no text');
    const texts = extra.map(({ key, of }) => [key, textsOf(of(claims), `extra ${key}`)] as const);
    const extras = Object.fromEntries(texts.filter(([, values]) => values.length > 0));
    const user: UserInfo = {
      name,
      groups: groups === undefined ? [] : textsOf(groups(claims), 'groups'),
      ...(typeof id === 'string' && id !== '' ? { uid: id } : {}),
      ...(Object.keys(extras).length === 0 ? {} : { extra: extras }),
    };
    const userVariable = { username: user.name, uid: user.uid ?? '', groups: user.groups, extra: user.extra ?? {} };
    for (const { program, message } of userChecks) {
      if (program.run(() => userVariable) !== true)
        throw new Error(`user validation failed: ${message ?? program.source}`);
    }
    return user;
  };
}

const listOf = (value: unknown): Record<string, unknown>[] =>
  Array.isArray(value) ? value.map((row: unknown) => (isJsonObject(row) ? row : {})) : [];

const messageOf = ({ message }: Record<string, unknown>): { readonly message?: string } =>
  typeof message === 'string' && message !== '' ? { message } : {};

function compiled(source: unknown, variables: Readonly<Record<string, CelType>>, at: string): Program {
  if (typeof source !== 'string' || source.trim() === '')
    throw new Error(`${at}: Required value: expression is required`);
  try {
    return compile(source, { variables });
  } catch (error) {
    if (!(error instanceof CelCompileError)) throw error;
    throw new Error(`${at}: ${error.reason}`, { cause: error });
  }
}

function claimCheck(rule: Record<string, unknown>, at: string): (claims: Claims) => void {
  const { claim, requiredValue, expression } = rule;
  if (typeof claim === 'string' && claim !== '') {
    if (expression !== undefined) throw new Error(`${at}: claim and expression can't both be set`);
    return (claims) => {
      if (!Object.hasOwn(claims, claim)) throw new Error(`required claim ${claim} not present in ID token`);
      if (claims[claim] !== (requiredValue ?? '')) throw new Error(`required claim ${claim} value does not match`);
    };
  }
  const program = compiled(expression, CLAIMS, `${at}.expression`);
  const { message = `validation expression '${program.source}' failed` } = messageOf(rule);
  return (claims) => {
    if (program.run(() => claims) !== true) throw new Error(message);
  };
}

/**
 * Returns the function that computes a value from the claims of a token: by an expression, or from one claim with a prefix.
 * Returns `undefined` if the row names neither. Throws if the row is invalid. The function throws if the evaluation fails, and
 * if the claim is `email` and the token has a claim `email_verified` that is not true.
 */
function mapping(row: unknown, at: string, { hasPrefix } = { hasPrefix: true }): Mapping | undefined {
  if (!isJsonObject(row)) return undefined;
  const { claim, prefix, expression } = row;
  if (typeof expression === 'string' && expression !== '') {
    if (claim !== undefined || prefix !== undefined)
      throw new Error(`${at}: expression and claim or prefix can't both be set`);
    const program = compiled(expression, CLAIMS, `${at}.expression`);
    return (claims) => program.run(() => claims);
  }
  if (typeof claim !== 'string' || claim === '') return undefined;
  if (hasPrefix && typeof prefix !== 'string')
    throw new Error(
      `${at}.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing`,
    );
  const before = typeof prefix === 'string' ? prefix : '';
  const add = (one: unknown): unknown => (typeof one === 'string' ? `${before}${one}` : one);
  return (claims) => {
    const value = Object.hasOwn(claims, claim) ? claims[claim] : MISSING;
    if (claim === 'email' && Object.hasOwn(claims, 'email_verified') && claims['email_verified'] !== true)
      throw new Error('email not verified');
    return Array.isArray(value) ? value.map(add) : add(value);
  };
}

function extraMapping(row: Record<string, unknown>, at: string): { readonly key: string; readonly of: Mapping } {
  const { key, valueExpression } = row;
  if (typeof key !== 'string' || key === '') throw new Error(`${at}.key: Required value`);
  if (key !== key.toLowerCase()) throw new Error(`${at}.key: Invalid value: "${key}": key must be lowercase`);
  const program = compiled(valueExpression, CLAIMS, `${at}.valueExpression`);
  return { key, of: (claims) => program.run(() => claims) };
}

/** Returns a string or a list of strings as a list; an absent or empty claim is an empty list. Throws for anything else. */
function textsOf(value: unknown, what: string): string[] {
  if (value === MISSING || value === null || value === undefined || value === '') return [];
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.map((one) => {
    if (typeof one !== 'string') throw new Error(`${what} must be a text or a list of texts`);
    return one;
  });
}

/**
 * Throws if the expression of the user name uses the claim `email` and no rule uses `email_verified`, because an unverified
 * e-mail address must not become a user name.
 */
function checkEmail(rules: Readonly<Record<string, unknown>>): void {
  const mappings = isJsonObject(rules['claimMappings']) ? rules['claimMappings'] : {};
  const username = isJsonObject(mappings['username']) ? mappings['username']['expression'] : undefined;
  if (typeof username !== 'string' || !/\bclaims\.email\b(?!_)/.test(username)) return;
  if (stringifyJson(rules).includes('claims.email_verified')) return;
  throw new Error(
    'claimMappings.username.expression: claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression',
  );
}
