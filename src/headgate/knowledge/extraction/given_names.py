"""Given names that are common somewhere in the world."""

from typing import Final

from headgate.knowledge.extraction.word_lists import phrases, words

GIVEN_NAMES: Final = words(
    """
    Aaron Abby Abdul Abdullah Abigail Abraham Ada Adam Adaeze Adele Adrian Adriana Agnes Agnieszka Ahmad
    Ahmed Aidan Aisha Akira Aki Alan Albert Alberto Alec Aleksander Aleksandra Alessandra Alessandro Alex
    Alexander Alexandra Alexandre Alexei Alexey Alexis Alfonso Alfred Alfredo Ali Alice Alicia Alina Alison
    Allan Allen Alma Alvaro Amanda Amara Amber Amelia Amina Amir Amit Amy Ana Anas Anastasia Anders Andre
    Andrea Andreas Andrei Andrew Andrzej André Angela Angelo Anil Anita Anja Ann Anna Anne Annette Annika
    Anthony Antoine Anton Antonia Antonio Anya Aria Ariel Arjun Arne Arnold Arthur Artur Arturo Asha Ashley
    Astrid Audrey Axel Ayesha Barbara Bart Beata Beatrice Beatriz Ben Benedict Benjamin Bernard Bernd
    Bernhard Beth Bettina Bianca Birgit Björn Bob Bogdan Boris Brad Bradley Brandon Brenda Brendan Brent
    Brian Bridget Bruce Bruno Bryan Camille Carl Carla Carlo Carlos Carmen Carol Carole Carolina Caroline
    Catherine Cecilia Cédric Celia Cesar Chad Chandra Charles Charlie Charlotte Chen Chidi Chinedu Chiara
    Chloe Chris Christa Christian Christina Christine Christoph Christophe Christopher Chukwuma Cindy Claire
    Clara Claude Claudia Claudio Clemens Colin Connor Conrad Constance Craig Cristina Curtis Cynthia Dagmar
    Daisuke Damian Damien Dan Dana Daniel Daniela Danielle Danilo Danny Daria Darius Darren Dave David Dean
    Deborah Deepak Denis Denise Dennis Derek Diana Diane Diego Dieter Dietrich Dimitri Dina Dirk Dmitri
    Dmitry Dominic Dominik Dominique Don Donald Donna Dora Doris Dorothy Doug Douglas Duncan Dylan Eberhard
    Ed Eddie Edgar Edith Edmund Eduardo Edward Edwin Eileen Elaine Eleanor Elena Elias Elif Elisa Elisabeth
    Elizabeth Ella Ellen Elliot Elsa Emil Emilia Emilie Emilio Emily Emma Emmanuel Enrico Enrique Eric Erica
    Erich Erik Erika Erin Ernest Ernst Esther Ethan Eugene Eva Evan Eve Evelyn Ewa Fabian Fabio Fabrice
    Farah Fatima Federico Felicity Felipe Felix Fernanda Fernando Fiona Florence Florian Frances Francesca
    Francesco Francis Francisco Franck Frank Franz François Françoise Fred Freddy Frederic Frederick Fredrik
    Frida Friedrich Gabriel Gabriela Gabriele Gareth Gary Gavin Geoff Geoffrey George Georg Gerald Gerard
    Gerd Gerhard Gertrude Gianluca Gianni Gideon Gilbert Gina Giorgio Giovanni Giulia Giuseppe Glenn Gloria
    Gordon Grace Graham Greg Gregor Gregory Greta Grzegorz Guido Guillaume Guillermo Gunnar Gunther Gustav
    Gustavo Guy Hamid Hana Hanna Hannah Hannes Hans Harald Hari Haris Harold Haruki Harry Harvey Hassan
    Heather Hector Heidi Heike Heinrich Heinz Helen Helena Helene Helga Helmut Henri Henrik Henry Herbert
    Herman Hermann Hiroshi Holger Hossein Howard Hubert Hugh Hugo Hussein Ian Ibrahim Ida Ignacio Igor Ilse
    Ines Inga Ingrid Ioana Ion Irene Irina Iris Irma Isaac Isabel Isabella Isabelle Ismail Ivan Ivana Ivo
    Jack Jackie Jacob Jacqueline Jacques Jaime Jake Jakob Jakub James Jamie Jan Jana Jane Janet Janice
    Javier Jay Jean Jeanne Jeff Jeffrey Jennifer Jenny Jens Jeremy Jerome Jerry Jessica Jesús Jill Jim Jimmy
    Jing Joachim Joan Joanna Joanne Joe Joel Johan Johann Johanna Johannes John Johnny Jon Jonas Jonathan
    Jorge Josef Joseph Josephine Josh Joshua José João Joyce Juan Juana Judith Judy Jukka Jules Julia Julian
    Juliana Julie Julien Juliet Julio Julius Jun Jürgen Justin Justine Karen Karim Karin Karina Karl Karla
    Karol Karolina Kasper Kate Katharina Katherine Kathleen Kathryn Katie Katja Katrin Kavita Kay Kazuo
    Keiko Keith Kelly Ken Kenji Kenneth Kerstin Kevin Khaled Khalid Kim Kimberly Kiran Klaus Knut Kofi
    Konrad Konstantin Krishna Kristen Kristian Kristin Kristina Krzysztof Kumar Kurt Kwame Kyle Lakshmi Lara
    Larry Lars Laszlo László Laura Lauren Laurence Laurent Lawrence Lea Leah Lee Leif Leila Lena Leo Leon
    Leonard Leonardo Leonie Leslie Leticia Liam Lidia Lila Lily Lina Linda Linus Lisa Liz Lois Lorena
    Lorenzo Lou Louis Louise Luca Lucas Lucia Luciano Lucie Lucy Lucía Ludwig Luigi Luis Luisa Luiz Lukas
    Luke Lydia Lynn Maciej Madeleine Magda Magdalena Magnus Mahmoud Maja Malcolm Malik Manfred Manuel
    Manuela Marc Marcel Marcela Marcelo Marcin Marco Marcos Marcus Marek Margaret Margarita Maria Mariam
    Marian Marianne Marie Mariana Marina Mario Marion Marisa Marius Mark Marko Markus Marlene Marta Martha
    Martin Martina Martine Mary Maryam Masako Masahiro Mateo Mateusz Mathias Mathieu Mats Matt Matteo
    Matthew Matthias Matthieu Maureen Maurice Mauricio Max Maxim Maxime Maya Megan Mehmet Mei Melanie
    Melissa Mercedes Meredith Mia Michael Michaela Michal Michel Michele Michelle Miguel Mikael Mike Mikhail
    Mila Milan Milena Ming Miriam Mitchell Mohamed Mohammad Mohammed Mona Monica Monika Monique Morgan
    Moritz Moses Muhammad Murat Mustafa Nadia Nadine Nancy Naomi Natalia Natalie Natasha Nathalie Nathan
    Nathaniel Neil Nelson Ngozi Nicholas Nick Nicola Nicolas Nicole Niels Nigel Niklas Nikola Nikolai
    Nikolaus Nils Nina Noah Noel Nora Norbert Norman Nuno Octavio Olaf Ole Oleg Olga Oliver Olivia Olivier
    Omar Oscar Oskar Otto Owen Pablo Paolo Pascal Pat Patricia Patrick Patrik Paul Paula Paulo Pavel Pawel
    Paweł Pedro Peggy Penelope Per Percy Pete Peter Petra Petr Phil Philip Philipp Philippe Phillip Pia
    Pierre Pieter Pilar Piotr Pradeep Priya Qing Rachel Rafael Raj Rajesh Ralf Ralph Ramesh Ramon Randy
    Raphael Raul Ravi Ray Raymond Rebecca Regina Reiner Reinhard Renate Rene René Ricardo Riccardo Richard
    Rick Rita Robert Roberta Roberto Robin Roger Roland Rolf Roman Ron Ronald Rosa Rosemary Ross Roy Ruben
    Rudolf Rui Rupert Russell Ruth Ryan Sabine Sabrina Sally Salma Salvador Sam Samantha Sami Samir Samuel
    Sandra Sandro Sanjay Santiago Sara Sarah Sasha Satoshi Scott Sean Sebastian Sebastián Sergei Sergey
    Sergio Seth Shane Shannon Sharon Sheila Shirley Sigrid Silke Silvia Simon Simona Simone Sofia Sonia
    Sonja Sophia Sophie Søren Stacy Stan Stanislav Stefan Stefania Stefano Steffen Stella Stephan Stephanie
    Stephen Steve Steven Stuart Sue Sunil Suresh Susan Susanna Susanne Suzanne Sven Svetlana Sylvia Sylvie
    Takeshi Tamara Tanja Tanya Tara Tariq Tatiana Teresa Terence Teri Terry Theo Theodor Theodore Theresa
    Thiago Thomas Tiffany Tim Timo Timothy Tina Tobias Todd Tom Tomas Tomasz Tomoko Toni Tony Torsten Tracy
    Trevor Tristan Tyler Uli Ulrich Ulrike Ursula Ute Uwe Valentin Valentina Valeria Valerie Vanessa Vera
    Veronica Victor Victoria Vijay Vikram Viktor Vincent Vincenzo Viola Virginie Vivian Vladimir Vlad Walter
    Wanda Wei Wendy Werner Wilhelm Willem William Willy Wilma Winston Wojciech Wolfgang Xavier Xiao Yan Yang
    Yannick Yasmin Yi Yolanda Yosef Youssef Yuan Yuki Yuko Yuri Yusuf Yves Yvonne Zachary Zainab Zoe Zofia
    Zsolt
    """
)
# They are more often something else when they stand alone, so that one word of them says nothing.
ALSO_WORDS: Final = words(
    """
    Adele Alma Amber Angelo Ariel Aria Carmen Chad Charlotte Constance Daria Dean Don Eve Faith Felicity
    Florence Gloria Grace Guy Hope Ion Iris Jack Jay Joy Kay Lily Lima Mark May Max Mercedes Milan Mona
    Morgan Ole Pat Penny Per Pia Ray Robin Roman Rose Ross Ruby San Sean Sofia Stella Sydney Tara Toni Uli
    Vera Victoria Viola Will Yang Chen Kim Lee Nelson Norman Austin Jordan Virginia
    """
)
# Between given name and surname.
PARTICLES: Final = phrases(
    """
    van, von, de, di, da, dos, del, della, du, la, le, ten, ter, bin, ibn, al, el, zu, af, av
    """
)
# In a German text they begin the next name, unless another one stands before them.
ARTICLES: Final = ("der", "den")
