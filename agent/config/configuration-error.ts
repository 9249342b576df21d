/** Options that cannot be: one line, or one line a mistake; the agent does not start. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
}
