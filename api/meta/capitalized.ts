/** Capitalizes words for names of operations, classes and methods. */

/** Returns the word with an upper-case first letter: `Pods` for `pods`. */
export const capitalized = (word: string): string => word.charAt(0).toUpperCase() + word.slice(1);
