#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

/// @file
/// As much of JSON Schema as the tests' schemas use. A keyword that is not known is an error, so
/// that none is taken for checked.

namespace support {

/// Where and why `value` breaks `schema`, or nothing.
[[nodiscard]] inline std::optional<std::string> schema_fault(const nlohmann::json& schema,
                                                             const nlohmann::json& value,
                                                             const std::string& at = "#") {
  const auto is = [&](const std::string& type) {
    return type == "object"    ? value.is_object()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "integer" ? value.is_number_integer()
           : type == "number"  ? value.is_number()
                               : throw std::invalid_argument("type " + type);
  };
  const auto matching = [&](const nlohmann::json& schemas) {
    return std::ranges::count_if(schemas,
                                 [&](const auto& one) { return !schema_fault(one, value, at); });
  };
  for (const auto& [keyword, rule] : schema.items()) {
    if (keyword == "type") {
      if (!is(rule.get<std::string>())) return at + " is no " + rule.get<std::string>();
    } else if (keyword == "enum") {
      if (std::ranges::find(rule, value) == rule.end()) return at + " is not one of " + rule.dump();
    } else if (keyword == "minimum") {
      if (value.is_number() && value < rule) return at + " is below " + rule.dump();
    } else if (keyword == "minLength") {
      if (value.is_string() && value.get<std::string>().size() < rule) return at + " is too short";
    } else if (keyword == "minItems") {
      if (value.is_array() && value.size() < rule) return at + " has too few items";
    } else if (keyword == "oneOf") {
      if (matching(rule) != 1)
        return at + " fits " + std::to_string(matching(rule)) + " of the cases: " + value.dump();
    } else if (keyword == "anyOf") {
      if (matching(rule) == 0) return at + " fits none of the cases: " + value.dump();
    } else if (keyword == "items") {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i)
        if (auto fault = schema_fault(rule, value[i], at + "/" + std::to_string(i))) return fault;
    } else if (keyword == "required") {
      for (const auto& name : rule)
        if (value.is_object() && !value.contains(name.get<std::string>()))
          return at + " has no " + name.dump();
    } else if (keyword == "properties") {
      for (const auto& [name, property] : rule.items())
        if (value.is_object() && value.contains(name))
          if (auto fault = schema_fault(property, value[name], at + "/" + name)) return fault;
    } else if (keyword == "additionalProperties") {
      if (!value.is_object()) continue;
      for (const auto& [name, property] : value.items()) {
        if (schema.contains("properties") && schema["properties"].contains(name)) continue;
        if (rule == false) return at + " has a superfluous \"" + name + "\"";
        if (auto fault = schema_fault(rule, property, at + "/" + name)) return fault;
      }
    } else {
      throw std::invalid_argument("keyword " + keyword);
    }
  }
  return std::nullopt;
}

} // namespace support
