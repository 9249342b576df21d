/**
 * Implements API priority and fairness: the configuration from FlowSchemas and PriorityLevelConfigurations, the priority
 * levels, which survive changes of it, and the periodic lending of seats between them.
 *
 * The mandatory objects apply whether or not they are stored. A deleted level serves its present requests and accepts no more.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import { MANDATORY_LEVELS, MANDATORY_SCHEMAS } from '../../registry/kinds/flowcontrol/flowcontrol-defaults.ts';
import type {
  FlowSchema,
  PriorityLevel as PriorityLevelObject,
} from '../../registry/kinds/flowcontrol/flowcontrol-types.ts';
import type { ApiRequest } from '../request.ts';
import { allocateFairly, concurrencyBounds } from './concurrency-limits.ts';
import { compileSchemas, FlowClassifier, type CompiledSchema, type Flow } from './flow-classifier.ts';
import { PriorityLevel } from './priority-level.ts';

interface FlowControlOptions {
  readonly clock: Clock;
  /** The number of seats of the server. */
  readonly totalSeats: number;
  /** The limit for bodies that a level receives or that wait for its seats. The default is 64 MiB. */
  readonly intakeBytes?: number;
}

const INTAKE_BYTES = 64 * 1024 * 1024;

/** The schema, the level and the flow of a request. */
export type LevelFlow = Flow<PriorityLevel>;

const CATCH_ALL = 'catch-all';

/** The state of all levels of this server. */
export class FlowControl {
  readonly #clock: Clock;
  readonly #intakeBytes: number;
  readonly totalSeats: number;
  /** The requests of all levels by kind. */
  readonly executing = { readOnly: 0, mutating: 0 };
  readonly waiting = { readOnly: 0, mutating: 0 };
  readonly #levels = new Map<string, PriorityLevel>();
  #classifier: FlowClassifier<PriorityLevel>;
  /** The proportion of its target that each level gets within its bounds, by the last adjustment. */
  fairProportion = 1;

  constructor({ clock, totalSeats, intakeBytes = INTAKE_BYTES }: FlowControlOptions) {
    this.#intakeBytes = intakeBytes;
    this.#clock = clock;
    this.totalSeats = totalSeats;
    this.#classifier = this.#compile([], []);
  }

  get levels(): ReadonlyMap<string, PriorityLevel> {
    return this.#levels;
  }

  /** Applies the stored objects as they are now. */
  configure(schemas: readonly FlowSchema[], levels: readonly PriorityLevelObject[]): void {
    this.#classifier = this.#compile(schemas, levels);
  }

  /** Returns the priority level and the flow of a request. */
  classify({ user, info }: Pick<ApiRequest, 'user' | 'info'>): LevelFlow {
    return this.#classifier.classify(user, info);
  }

  /** Lends seats according to the demand of the period that ends now. */
  adjust(): void {
    const nowMs = this.#clock.monotonic();
    const levels = [...this.#levels.values()];
    for (const level of levels) {
      level.observe(nowMs);
      level.target = Math.max(level.floor, level.smoothedDemand);
    }
    const total = levels.reduce((sum, { bounds }) => sum + bounds.nominal, 0);
    const items = levels.map(({ floor, bounds, target }) => ({ lower: floor, upper: bounds.upper, target }));
    const { seats, fairProportion } = allocateFairly(total, items);
    this.fairProportion = fairProportion;
    levels.forEach((level, at) => level.limit(Math.round(seats[at] ?? level.bounds.nominal)));
  }

  /** Creates, configures and deletes the levels. Returns the classifier for the schemas. */
  #compile(schemas: readonly FlowSchema[], levels: readonly PriorityLevelObject[]): FlowClassifier<PriorityLevel> {
    const stored = new Map(levels.map((level) => [level.metadata.name ?? '', level]));
    const specs = new Map(levels.map(({ metadata, spec }) => [metadata.name ?? '', spec ?? {}]));
    for (const [name, spec] of Object.entries(MANDATORY_LEVELS)) if (!specs.has(name)) specs.set(name, spec);
    const bounds = concurrencyBounds(specs, this.totalSeats);
    for (const name of this.#levels.keys()) if (!specs.has(name)) this.#levels.delete(name);
    for (const [name, spec] of specs) {
      const level = this.#levels.get(name) ?? new PriorityLevel(name, this.#clock, this.#intakeBytes);
      this.#levels.set(name, level);
      const bound = bounds.get(name);
      if (bound !== undefined) level.configure(stored.get(name)?.metadata.uid ?? '', spec, bound);
    }
    const present = new Set(schemas.map(({ metadata }) => metadata.name));
    const missing = Object.entries(MANDATORY_SCHEMAS)
      .filter(([name]) => !present.has(name))
      .map(([name, spec]): FlowSchema => ({ metadata: { name }, spec }));
    const compiled = compileSchemas([...schemas, ...missing], this.#levels);
    return new FlowClassifier(compiled, fallbackOf(compiled));
  }
}

function fallbackOf(schemas: readonly CompiledSchema<PriorityLevel>[]): CompiledSchema<PriorityLevel> {
  const fallback = schemas.find(({ name }) => name === CATCH_ALL);
  if (fallback === undefined) throw new Error('the mandatory flow schema catch-all is missing');
  return fallback;
}
