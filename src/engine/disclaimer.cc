// Words before cloned speech.
#include "engine/disclaimer.h"

#include <utility>

namespace skald::engine {

std::string_view default_disclaimer(std::string_view language) noexcept {
  constexpr std::pair<std::string_view, std::string_view> kTexts[] = {
      {"english", "This voice was made by a computer."},
      {"chinese", "这段声音由电脑合成。"},
      {"japanese", "この音声はコンピューターで合成されたものです。"},
      {"korean", "이 음성은 컴퓨터로 합성되었습니다."},
      {"german", "Diese Stimme wurde von einem Computer erzeugt."},
      {"french", "Cette voix a été créée par un ordinateur."},
      {"russian", "Этот голос создан компьютером."},
      {"portuguese", "Esta voz foi criada por um computador."},
      {"spanish", "Esta voz ha sido creada por un ordenador."},
      {"italian", "Questa voce è stata creata da un computer."},
  };
  for (const auto& [name, text] : kTexts)
    if (name == language) return text;
  return kTexts[0].second;
}

}  // namespace skald::engine
