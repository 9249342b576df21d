/**
 * Rules in CEL (`x-kubernetes-validations`) of a schema, made ready to be evaluated: compiled once a definition, kept in
 * the shape of the schema so that a write only visits values that have rules.
 */
import { CelCompileError, compile, type Program } from '../../../api/cel/cel.ts';
import { type CelType, isOpen, optional } from '../../../api/cel/types.ts';
import { invalid, notSupported, required, type FieldError } from '../../../api/meta/field-error.ts';
import { itemsOf, type JsonSchema, memberSchema } from './json-schema.ts';
import { celTypeOf } from './rule-types.ts';

export interface Rule {
  readonly source: string;
  readonly message: string;
  readonly reason: string;
  readonly fieldPath: string;
  readonly optionalOldSelf: boolean;
  /** Reads the old value. */
  readonly isTransition: boolean;
  readonly program: Program;
  readonly messageProgram: Program | undefined;
}

/** Rules of a value and of what is inside of it. */
export interface RuleNode {
  readonly schema: JsonSchema;
  readonly rules: readonly Rule[];
  readonly properties: ReadonlyMap<string, RuleNode>;
  /** Of items, or of further members. */
  readonly items: RuleNode | undefined;
  readonly members: RuleNode | undefined;
}

export interface CompiledRules {
  readonly isEmpty: boolean;
  readonly root: RuleNode | undefined;
}

interface RuleText {
  readonly rule?: string;
  readonly message?: string;
  readonly messageExpression?: string;
  readonly reason?: string;
  readonly fieldPath?: string;
  readonly optionalOldSelf?: boolean;
}

const REASONS = ['FieldValueForbidden', 'FieldValueInvalid', 'FieldValueDuplicate', 'FieldValueRequired'];

export function compileRules(
  schema: JsonSchema,
  path: string,
): { readonly errors: readonly FieldError[]; readonly rules: CompiledRules } {
  const texts: FieldError[] = [];
  const faults: FieldError[] = [];
  const root = nodeOf(schema, path, { errors: texts, faults, isResource: true });
  // Expressions are judged when everything else about them is right.
  const errors = texts.length > 0 ? texts : faults;
  return { errors, rules: { isEmpty: root === undefined, root } };
}

interface Visit {
  readonly errors: FieldError[];
  /** Of what does not compile. */
  readonly faults: FieldError[];
  readonly isResource: boolean;
}

function nodeOf(schema: JsonSchema, path: string, { errors, faults, isResource }: Visit): RuleNode | undefined {
  const texts = (schema['x-kubernetes-validations'] ?? []) as readonly RuleText[];
  const rules: Rule[] = [];
  if (texts.length > 0) {
    const type = celTypeOf(schema, isResource);
    texts.forEach((text, index) => {
      const rule = ruleOf(text, type, schema, { path: `${path}.x-kubernetes-validations[${index}]`, errors, faults });
      if (rule !== undefined) rules.push(rule);
    });
  }
  const inside = (inner: JsonSchema | undefined, at: string): RuleNode | undefined =>
    inner === undefined
      ? undefined
      : nodeOf(inner, at, { errors, faults, isResource: inner['x-kubernetes-embedded-resource'] === true });
  const properties = new Map<string, RuleNode>();
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    const node = inside(inner, `${path}.properties[${name}]`);
    if (node !== undefined) properties.set(name, node);
  }
  const items = inside(itemsOf(schema), `${path}.items`);
  const { additionalProperties } = schema;
  const members = inside(
    typeof additionalProperties === 'object' ? additionalProperties : undefined,
    `${path}.additionalProperties`,
  );
  if (rules.length === 0 && properties.size === 0 && items === undefined && members === undefined) return undefined;
  return { schema, rules, properties, items, members };
}

/** As the reference shows a rule inside a message. */
function goForm(text: RuleText): object {
  return {
    Rule: text.rule ?? '',
    Message: text.message ?? '',
    MessageExpression: text.messageExpression ?? '',
    Reason: text.reason ?? null,
    FieldPath: text.fieldPath ?? '',
    OptionalOldSelf: text.optionalOldSelf ?? null,
  };
}

function ruleOf(
  text: RuleText,
  type: CelType,
  schema: JsonSchema,
  { path, errors, faults }: Pick<Visit, 'errors' | 'faults'> & { readonly path: string },
): Rule | undefined {
  const before = errors.length;
  const { rule: source = '', message = '', messageExpression = '', reason = '', fieldPath = '' } = text;
  if (source.trim() === '') {
    errors.push(required(`${path}.rule`, 'rule is not specified'));
    return undefined;
  }
  if (message !== '' && message.trim() === '') {
    errors.push(invalid(`${path}.message`, message, 'message must be non-empty if specified'));
  } else if (message.includes('\n')) {
    errors.push(invalid(`${path}.message`, message, 'message must not contain line breaks'));
  } else if (source.includes('\n') && message === '') {
    errors.push(required(`${path}.message`, 'message must be specified if rule contains line breaks'));
  }
  if (messageExpression !== '' && messageExpression.trim() === '') {
    errors.push(required(`${path}.messageExpression`, 'must be non-empty if specified'));
  }
  if (reason !== '' && !REASONS.includes(reason)) errors.push(notSupported(`${path}.reason`, reason, REASONS));
  if (fieldPath !== '' && !fieldExists(schema, fieldPath)) {
    const why = `fieldPath must be a valid path: does not refer to a valid field`;
    errors.push(invalid(`${path}.fieldPath`, fieldPath, why));
  }
  const optionalOldSelf = text.optionalOldSelf ?? false;
  const variables = { self: type, oldSelf: text.optionalOldSelf === true ? optional(type) : type };
  const program = compiled(source, variables, 'bool', (why) => faults.push(invalid(`${path}.rule`, goForm(text), why)));
  const messageProgram =
    messageExpression.trim() === ''
      ? undefined
      : compiled(messageExpression, variables, 'string', (why) =>
          faults.push(invalid(`${path}.messageExpression`, goForm(text), why)),
        );
  if (program === undefined || errors.length > before) return undefined;
  const isTransition = program.references.has('oldSelf');
  if (optionalOldSelf && !isTransition) {
    const why = `may not be set if oldSelf is not used in rule`;
    errors.push(invalid(`${path}.optionalOldSelf`, true, why));
  }
  return { source, message, reason, fieldPath, optionalOldSelf, isTransition, program, messageProgram };
}

function compiled(
  source: string,
  variables: Readonly<Record<string, CelType>>,
  wanted: 'bool' | 'string',
  refuse: (why: string) => void,
): Program | undefined {
  try {
    const program = compile(source, { variables });
    if (program.type.kind === wanted || (wanted === 'bool' && isOpen(program.type))) return program;
    refuse(
      wanted === 'bool' ? `cel expression must evaluate to a bool` : `messageExpression must evaluate to a string`,
    );
  } catch (error) {
    if (!(error instanceof CelCompileError)) throw error;
    refuse(`compilation failed: ${error.message}`);
  }
  return undefined;
}

/** Steps of a rule's `fieldPath`: `.a['b.c'].d`. */
export function fieldPathNames(path: string): string[] | undefined {
  const names: string[] = [];
  let rest = path;
  while (rest !== '') {
    const step = /^\.([A-Za-z_][A-Za-z0-9_-]*)|^\['((?:[^'\\]|\\.)*)'\]/.exec(rest);
    if (step === null) return undefined;
    names.push(step[1] ?? step[2]?.replace(/\\(.)/g, '$1') ?? '');
    rest = rest.slice(step[0].length);
  }
  return names;
}

function fieldExists(schema: JsonSchema, path: string): boolean {
  const end = (fieldPathNames(path) ?? ['']).reduce<JsonSchema | undefined>(
    (inner, name) => (inner === undefined ? undefined : memberSchema(inner, name)),
    schema,
  );
  return end !== undefined;
}
