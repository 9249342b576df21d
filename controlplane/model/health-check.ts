/** One check. Its name follows `/livez/` and the like in its path, and may contain slashes. */
export interface HealthCheck {
  readonly name: string;
  /** Throws if the check fails. */
  check(): void | Promise<void>;
}
